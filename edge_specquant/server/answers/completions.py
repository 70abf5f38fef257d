"""/v1/completions: a reply's events as text, whole or in chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...engine.events import TokenEvent
from ..queue import Reply, Started
from ..requests.bodies import CompletionRequest
from .logprobs import CompletionLogprobs, PieceOf
from .outcome import Outcome, figures, usage
from .sse import Indexed


@dataclass(slots=True)
class Choice:
    """One choice while it grows. `echo` is put in front of its text."""

    echo: str
    logprobs: CompletionLogprobs | None
    outcome: Outcome = field(default_factory=Outcome)
    _texts: list[str] = field(default_factory=list)

    def feed(self, event: TokenEvent) -> str:
        """The text that an event adds. Raises ApiError when the reply was broken off."""
        if event.finish_reason is not None:
            self.outcome.end(event)
        text = event.text if self._texts else self.echo + event.text
        self._texts.append(text)
        if self.logprobs is not None:
            self.logprobs.feed(event)
        return text

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self._texts)


def _logprobs(body: CompletionRequest, piece_of: PieceOf, echo: str) -> CompletionLogprobs | None:
    if body.logprobs is None:
        return None
    return CompletionLogprobs(piece_of, body.logprobs, len(echo) if body.echo else None)


class CompletionAnswer:
    """One answer to a completion request, with all its choices. echoes: each prompt's text, or ""."""

    def __init__(self, body: CompletionRequest, piece_of: PieceOf, echoes: Sequence[str]) -> None:
        self._n = body.n or 1
        self._choices = [Choice(echo, _logprobs(body, piece_of, echo)) for echo in echoes for _ in range(self._n)]
        self._wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._head = {
            "id": f"cmpl-{secrets.token_hex(14)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body.model,
        }

    async def whole(self, reply: Reply) -> dict[str, Any]:
        """The answer as one object. Raises ApiError."""
        async for index, event in reply:
            self._take(index, event)
        choices = [
            {
                "index": i,
                "text": choice.text,
                "logprobs": choice.logprobs.take() if choice.logprobs is not None else None,
                "finish_reason": choice.outcome.finish_reason,
            }
            for i, choice in enumerate(self._choices)
        ]
        outcomes = [choice.outcome for choice in self._choices]
        return {
            **self._head,
            "choices": choices,
            "usage": usage(outcomes, self._n),
            "x_edge_specquant": figures(outcomes),
        }

    async def chunks(self, items: AsyncIterator[Indexed]) -> AsyncIterator[dict[str, Any]]:
        """The answer in chunks, and the usage where it is asked for. Raises ApiError."""
        async for index, event in items:
            choice = self._choices[index]
            text = self._take(index, event)
            ended = choice.outcome.finish_reason
            if text:
                yield self._chunk(index, text, choice.logprobs.take() if choice.logprobs is not None else None)
            if ended is not None:
                rest = choice.logprobs.take() if choice.logprobs is not None else None
                yield {**self._chunk(index, "", rest, ended), "x_edge_specquant": choice.outcome.figures()}
        if self._wants_usage:
            outcomes = [choice.outcome for choice in self._choices]
            yield {**self._head, "choices": [], "usage": usage(outcomes, self._n)}

    def _take(self, index: int, event: TokenEvent | Started) -> str:
        choice = self._choices[index]
        if isinstance(event, Started):
            choice.outcome.siblings = event
            return ""
        return choice.feed(event)

    def _chunk(
        self, index: int, text: str, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
        chunk = {**self._head, "choices": [choice]}
        return chunk | {"usage": None} if self._wants_usage else chunk
