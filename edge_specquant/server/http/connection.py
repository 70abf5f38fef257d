"""uvicorn's HTTP/1.1 connection with a time-out for request heads: a client that sends them byte by byte is let go.

uvicorn times idle connections only between requests; this also times the first head and each one begun later.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


def timed_connection(header_timeout_s: float) -> type[H11Protocol]:
    """The connection class of one server."""

    class TimedConnection(H11Protocol):
        """Closes when no whole head has come in time."""

        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget_head()  # a request is being answered: its body and its answer have times of their own
            elif self._head_timer is None and self.timeout_keep_alive_task is None:
                self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_head()
            super().connection_lost(exc)

        def _expect_head(self) -> None:
            self._head_timer = self.loop.call_later(header_timeout_s, self._head_is_late)

        def _forget_head(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _head_is_late(self) -> None:
            self._head_timer = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return TimedConnection
