"""A program in a terminal of its own: what it shows is read, keys are typed, and when things appear is told.

A pseudo-terminal, so POSIX only. Takes a command, gives seconds since its start. Knows nothing of what is shown.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from ...errors import EngineError, UsageError

SIZE = (120, 40)
_LOOK_EVERY_S = 0.01
_DULL = {"NO_COLOR", "COLUMNS", "LINES", "TEXTUAL_DRIVER", "TEXTUAL"}  # with these it would show something else


class Terminal:
    """A running program, for a `with`; what still runs at its end is killed.

    Raises UsageError where there are no pseudo-terminals.
    """

    def __init__(
        self, command: Sequence[str], *, size: tuple[int, int] = SIZE, environment: Mapping[str, str] | None = None
    ) -> None:
        """size: columns and lines. environment: added to this process's own."""
        self._command, self._size = list(command), size
        own = {name: value for name, value in os.environ.items() if name not in _DULL}
        self._environment = own | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | dict(environment or {})
        self._shown = b""

    def __enter__(self) -> Terminal:
        self._ours, inner = _open_terminal(self._size)
        self._began = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                self._command, stdin=inner, stdout=inner, stderr=inner, env=self._environment, start_new_session=True
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(inner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def type(self, text: str) -> float:
        """Presses keys; gives when."""
        os.write(self._ours, text.encode())
        return self.now_s

    def seen(self, text: str, patience_s: float) -> float:
        """Waits until the text has been shown; gives when. Raises EngineError when the program or patience ends."""
        wanted, until = text.encode(), self.now_s + patience_s
        while wanted not in self._shown:
            if not self._read():
                raise EngineError(f"the program ended before it showed '{text}'; its last words: {self.last_words}")
            if self.now_s > until:
                raise EngineError(f"'{text}' did not show within {patience_s:.0f} s; last words: {self.last_words}")
        return self.now_s

    def ended(self, patience_s: float) -> float:
        """Waits for the end of the program; gives when. Raises EngineError when it goes on for patience_s."""
        until = self.now_s + patience_s
        while self._process.poll() is None:  # its children may hold the terminal for longer
            if self.now_s > until:
                raise EngineError(f"the program did not end within {patience_s:.0f} s; last words: {self.last_words}")
            if not self._read():
                time.sleep(_LOOK_EVERY_S)
        return self.now_s

    @property
    def last_words(self) -> str:
        """The end of what was shown, on one line."""
        text = self._shown[-2000:].decode("utf-8", "replace")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[-300:] or "none"

    def _read(self) -> bool:
        """Takes what there is, waiting a little. False when nobody holds the other end any more."""
        ready, _, _ = select.select([self._ours], [], [], _LOOK_EVERY_S)
        if not ready:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # how Linux says so
            return False
        self._shown += data
        return bool(data)


def _open_terminal(size: tuple[int, int]) -> tuple[int, int]:
    """Both ends of a new pseudo-terminal: ours, and the program's."""
    try:
        import fcntl
        import struct
        import termios

        ours, inner = os.openpty()
    except (ImportError, AttributeError, OSError) as error:
        raise UsageError(
            f"this system gives no pseudo-terminal ({error}), so a start cannot be timed; on Windows, try it in WSL"
        ) from error
    columns, lines = size
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    return ours, inner
