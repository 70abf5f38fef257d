"""A reply being written: an iterator of events that any thread may cancel. Knows nothing of who writes it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from types import TracebackType

from ..engine.events import TokenEvent

Events = Generator[TokenEvent, None, None]


class Reply(Iterator[TokenEvent]):
    """The events of one reply, ending in one with a finish_reason. Closing it early stops the engine's work on it."""

    def __init__(self, events: Events, cancel: Callable[[], None]) -> None:
        self._events = events
        self._cancel = cancel

    def __iter__(self) -> Reply:
        return self

    def __next__(self) -> TokenEvent:
        return next(self._events)

    def cancel(self) -> None:
        """Stops the reply at the next graph node, or takes it out of the line; its last event still comes.

        Call from any thread.
        """
        self._cancel()

    def close(self) -> None:
        """Ends the reply without its last event. Only for the thread that reads it."""
        self._events.close()

    def __enter__(self) -> Reply:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
