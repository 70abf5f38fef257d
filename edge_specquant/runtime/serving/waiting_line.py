"""A fair line: whoever asked first is served first, whatever thread it asks from. Knows nothing of what is served."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from ...errors import UsageError


@dataclass(eq=False, slots=True)
class Place:
    """One caller's place. `cancelled` is set from any thread; `thread` is the one that waited for its turn.

    is_alone: never served beside another of this kind.
    """

    is_alone: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Line:
    """First come, first served; n_served at a time."""

    def __init__(self, n_served: int = 1) -> None:
        self._n_served = n_served
        self._served: list[Place] = []
        self._waiting: deque[Place] = deque()
        self._changed = threading.Condition()

    def wait(self, place: Place) -> bool:
        """Joins the line and returns True once it is this place's turn, False when it was cancelled before.

        Raises UsageError where waiting could never end: the main thread holds an unfinished reply and asks for another.
        """
        place.thread = threading.current_thread()
        with self._changed:
            if not self._has_room(place) and place.thread is threading.main_thread() in [
                other.thread for other in self._served
            ]:
                raise UsageError("a reply is still unfinished in this thread; read it to its end or close it first")
            self._waiting.append(place)
            while not self._is_next(place) and not place.cancelled.is_set():
                self._changed.wait()
            is_served = not place.cancelled.is_set()
            self._waiting.remove(place)
            if is_served:
                self._served.append(place)
            self._changed.notify_all()
            return is_served

    def leave(self, place: Place) -> None:
        """Ends this place's turn."""
        with self._changed:
            if place in self._served:
                self._served.remove(place)
            self._changed.notify_all()

    def cancel(self, place: Place) -> None:
        """Marks the place cancelled; it leaves the line if it was still waiting."""
        place.cancelled.set()
        with self._changed:
            self._changed.notify_all()

    def is_served(self, place: Place) -> bool:
        """Whether it is this place's turn."""
        with self._changed:
            return place in self._served

    def all(self) -> list[Place]:
        """Everyone in line, those being served first."""
        with self._changed:
            return [*self._served, *self._waiting]

    @property
    def n_waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def _is_next(self, place: Place) -> bool:
        """Whether this is the first who can be served; who must wait for its own kind lets others pass."""
        return place is next((other for other in self._waiting if self._has_room(other)), None)

    def _has_room(self, place: Place) -> bool:
        is_blocked = place.is_alone and any(other.is_alone for other in self._served)
        return len(self._served) < self._n_served and not is_blocked
