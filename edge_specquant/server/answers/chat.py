"""/v1/chat/completions: a reply's events as a message, whole or in chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from ...engine.events import TokenEvent
from ..queue import Reply, Started
from ..requests.bodies import ChatRequest
from ..requests.tools import ToolReader
from .logprobs import ChatLogprobs, PieceOf
from .outcome import Outcome, figures, usage
from .sse import Indexed

Delta = dict[str, Any]
ANSWER = "answer"


@dataclass(slots=True)
class _Call:
    """A call of a function while it grows."""

    id: str
    name: str
    arguments: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class Choice:
    """One choice while it grows; `feed` gives what an event adds, `message` the whole."""

    tools: ToolReader | None
    logprobs: ChatLogprobs | None
    outcome: Outcome = field(default_factory=Outcome)
    _content: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _entries: list[dict[str, Any]] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)

    def feed(self, event: TokenEvent) -> list[tuple[Delta, list[dict[str, Any]]]]:
        """Pairs of delta and logprobs entries. Raises ApiError when the reply was broken off."""
        if event.finish_reason is not None:
            self.outcome.end(event)
        self.outcome.note(event)
        deltas = self._thought_deltas(event)
        entries = self.logprobs.feed(event) if self.logprobs is not None and event.part == ANSWER else []
        self._entries += entries
        if self.tools is not None:
            return deltas + [(delta, []) for delta in self._tool_deltas(self.tools, event.text)]
        if not event.text and not entries:
            return deltas
        self._content.append(event.text)
        return [*deltas, ({"content": event.text}, entries)]

    @property
    def finish_reason(self) -> str | None:
        """stop, length or tool_calls; None before the end."""
        reason = self.outcome.finish_reason
        called = self.tools is not None and self.tools.called
        return "tool_calls" if called and reason == "stop" else reason

    def message(self) -> dict[str, Any]:
        """The assistant's message."""
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = [call.as_dict() for call in self._calls]
            message["content"] = content or None
        return message

    def all_logprobs(self) -> dict[str, Any] | None:
        """The logprobs object, None where none was asked for."""
        return wrapped(self._entries) if self.logprobs is not None else None

    def _thought_deltas(self, event: TokenEvent) -> list[tuple[Delta, list[dict[str, Any]]]]:
        if not event.thought:
            return []
        self._thoughts.append(event.thought)
        return [({"reasoning_content": event.thought}, [])]

    def _tool_deltas(self, tools: ToolReader, text: str) -> list[Delta]:
        deltas: list[Delta] = []
        for piece in tools.feed(text):
            if piece.content:
                self._content.append(piece.content)
                deltas.append({"content": piece.content})
                continue
            if piece.name is not None:
                self._calls.append(_Call(f"call_{secrets.token_hex(12)}", piece.name))
                deltas.append({"tool_calls": [{"index": piece.index, **self._calls[-1].as_dict()}]})
            if piece.arguments:
                self._calls[-1].arguments.append(piece.arguments)
                deltas.append({"tool_calls": [{"index": piece.index, "function": {"arguments": piece.arguments}}]})
        return deltas


class ChatAnswer:
    """One answer to a chat request, with all its choices. piece_of: a token's bytes. reader: parts calls from text."""

    def __init__(self, body: ChatRequest, piece_of: PieceOf, reader: Callable[[], ToolReader] | None) -> None:
        wants_logprobs = bool(body.logprobs) and reader is None  # of JSON around a call they would mislead
        self._choices = [
            Choice(
                reader() if reader is not None else None,
                ChatLogprobs(piece_of, body.top_logprobs or 0) if wants_logprobs else None,
            )
            for _ in range(body.n or 1)
        ]
        self._wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._head = {"id": f"chatcmpl-{secrets.token_hex(14)}", "created": int(time.time()), "model": body.model}

    async def whole(self, reply: Reply) -> dict[str, Any]:
        """The answer as one object. Raises ApiError."""
        async for index, event in reply:
            self._take(index, event)
        choices = [
            {
                "index": i,
                "message": choice.message(),
                "logprobs": choice.all_logprobs(),
                "finish_reason": choice.finish_reason,
            }
            for i, choice in enumerate(self._choices)
        ]
        outcomes = [choice.outcome for choice in self._choices]
        return {
            **self._head,
            "object": "chat.completion",
            "choices": choices,
            "usage": usage(outcomes, len(outcomes)),
            "x_edge_specquant": figures(outcomes),
        }

    async def chunks(self, items: AsyncIterator[Indexed]) -> AsyncIterator[dict[str, Any]]:
        """The answer in chunks: role, contents, finish, and the usage where it is asked for. Raises ApiError."""
        for i in range(len(self._choices)):
            yield self._chunk(i, {"role": "assistant", "content": "", "refusal": None})
        async for index, event in items:
            choice = self._choices[index]
            for delta, entries in self._take(index, event):
                yield self._chunk(index, delta, wrapped(entries) if choice.logprobs is not None else None)
            if choice.finish_reason is not None:
                last = self._chunk(index, {}, finish_reason=choice.finish_reason)
                yield {**last, "x_edge_specquant": choice.outcome.figures()}
        if self._wants_usage:
            outcomes = [choice.outcome for choice in self._choices]
            yield {**self._envelope(), "choices": [], "usage": usage(outcomes, len(outcomes))}

    def _take(self, index: int, event: TokenEvent | Started) -> list[tuple[Delta, list[dict[str, Any]]]]:
        choice = self._choices[index]
        if isinstance(event, Started):
            choice.outcome.siblings = event
            return []
        return choice.feed(event)

    def _chunk(
        self, index: int, delta: Delta, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        chunk = {**self._envelope(), "choices": [choice]}
        return chunk | {"usage": None} if self._wants_usage else chunk

    def _envelope(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}


def wrapped(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """OpenAI's logprobs object of a chat."""
    return {"content": entries, "refusal": None}
