"""A fair line: whoever asked first is served first, whatever thread it asks from. Knows nothing of what is served."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from ..errors import UsageError


@dataclass(eq=False, slots=True)
class Place:
    """One caller's place. `cancelled` is set from any thread; the thread is the one that last took a step."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Line:
    """First come, first served; one is served at a time."""

    def __init__(self) -> None:
        self._places: deque[Place] = deque()
        self._changed = threading.Condition()

    def wait(self, place: Place) -> bool:
        """Joins the line and returns True once it is this place's turn, False when it was cancelled before.

        Raises UsageError where waiting could never end: the main thread holds an unfinished reply and asks for another.
        """
        place.thread = threading.current_thread()
        with self._changed:
            if self._places and self._places[0].thread is place.thread is threading.main_thread():
                raise UsageError("a reply is still unfinished in this thread; read it to its end or close it first")
            self._places.append(place)
            while self._places[0] is not place and not place.cancelled.is_set():
                self._changed.wait()
            if not place.cancelled.is_set():
                return True
            self._places.remove(place)
            self._changed.notify_all()
            return False

    def leave(self, place: Place) -> None:
        """Ends this place's turn."""
        with self._changed:
            if place in self._places:
                self._places.remove(place)
            self._changed.notify_all()

    def cancel(self, place: Place) -> None:
        """Marks the place cancelled; it leaves the line if it was still waiting."""
        place.cancelled.set()
        with self._changed:
            self._changed.notify_all()

    def served(self) -> Place | None:
        """Whose turn it is."""
        with self._changed:
            return self._places[0] if self._places else None

    def all(self) -> list[Place]:
        """Everyone in line, the one being served first."""
        with self._changed:
            return list(self._places)
