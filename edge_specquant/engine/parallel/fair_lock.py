"""A lock that is given to whoever asked first. Python's own may go back for ever to the thread that has just let go.

Knows nothing of what is done in turn.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """A fair lock, for `with`. Not re-entrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            turn.wait()
        except BaseException:  # Ctrl-C while waiting: the turn may have come in the same moment
            self._give_up(turn)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._pass_on()

    def _pass_on(self) -> None:
        """It stays taken when somebody waits: nobody can come in between."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._is_taken = False

    def _give_up(self, turn: threading.Event) -> None:
        with self._lock:
            if turn.is_set():
                self._pass_on()
            else:
                self._waiting.remove(turn)
