"""Server-sent events: a reply's chunks as `data:` lines, an error as one, `[DONE]` after the last.

Headers wait a little for the first token, so that a request that cannot be answered still gets its own status.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from ...engine.events import TokenEvent
from ..errors import as_api_error
from ..options import ServerOptions
from ..queue import Reply, Started

Indexed = tuple[int, TokenEvent | Started]

DONE = b"data: [DONE]\n\n"


def data_line(document: dict[str, Any]) -> bytes:
    """One event. JSON escapes line ends itself, so a document is always one line."""
    return b"data: " + json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


async def opened(reply: Reply, patience_s: float) -> AsyncIterator[Indexed]:
    """The reply's items, from the first on, after its first token has come or patience has ended.

    Raises ApiError when the reply fails before.
    """
    held: list[Indexed] = []

    async def until_token() -> None:
        async for item in reply:
            held.append(item)
            if isinstance(item[1], TokenEvent):
                return

    # A long queue or prefill: the headers go now, and failures will be told in the stream.
    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(until_token(), patience_s)
    return _chained(held, reply)


async def _chained(held: list[Indexed], reply: Reply) -> AsyncIterator[Indexed]:
    for item in held:
        yield item
    async for item in reply:
        yield item


class EventStream(EventSourceResponse):
    """Sends documents as events; a client that leaves, or does not read, cancels the reply."""

    def __init__(self, documents: AsyncIterator[dict[str, Any]], reply: Reply, options: ServerOptions) -> None:
        super().__init__(
            _lines(documents),
            sep="\n",
            ping=options.ping_s,
            ping_message_factory=lambda: ServerSentEvent(comment="", sep="\n"),
            send_timeout=options.send_timeout_s,
            shutdown_grace_period=options.drain_s,
        )
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reply.cancel()  # also where the client left before the first line was asked for


async def _lines(documents: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    try:
        async for document in documents:
            yield data_line(document)
    except Exception as error:  # the status is sent: an error can only be told in the stream
        yield data_line(as_api_error(error).as_dict())
        return
    yield DONE
