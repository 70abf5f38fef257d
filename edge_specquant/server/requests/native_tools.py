"""Function calling as models of the Hermes kind (Qwen, SmolLM3 ...) were taught it: <tool_call>{...}</tool_call>.

The model's own template describes the tools; a grammar lets prose through as it is and binds what stands between the
tags to the tools' schemas. `CallStream` parts the two while the reply grows. Other models: `tools.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .bodies import Message
from .conversation import text_of, thought_of
from .tools import ToolDelta, ToolPlan, ToolStream

OPEN, CLOSE = "<tool_call>", "</tool_call>"

# Prose ends with the reply or with its first opening tag, which a lexer that goes on while it can would swallow.
_RULES = (
    f"TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/",
    f"first[lazy]: /(?s:.*){OPEN}/",
    f'tagged: "\\n" call "\\n{CLOSE}"',
)


def is_spoken_by(template: str | None) -> bool:
    """Whether a chat template describes tools in this way."""
    return template is not None and "tools" in template and OPEN in template


def lark(plan: ToolPlan, *, parallel: bool) -> str:
    """The grammar of a reply: prose where it is allowed, then calls. Its schemas are the plan's."""
    more = f' ("\\n{OPEN}" tagged)*' if parallel else ""
    start = f"TEXT | first tagged{more}" if plan.may_reply else f'"{OPEN}" tagged{more}'
    return "\n".join((f"start: {start}", *_RULES, plan.call_rule()))


def native_turns(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """One turn a message, calls and results in the fields that templates read. Raises ApiError 400."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
    return [_turn(message, f"messages.{i}", names) for i, message in enumerate(messages)]


class CallStream:
    """Feed it text as it comes. Prose comes out as content, each tagged object as a call."""

    def __init__(self) -> None:
        self._held = ""
        self._call: ToolStream | None = None
        self._n_calls = 0

    @property
    def called(self) -> bool:
        """Whether a function is called."""
        return self._n_calls > 0

    def feed(self, text: str) -> list[ToolDelta]:
        """The deltas that are certain now."""
        self._held += text
        if self._call is not None:
            return self._inside(self._call)
        before, tag, after = self._held.partition(OPEN)
        if tag:
            shown = self._prose(before)
            self._held, self._call = after, ToolStream()
            self._n_calls += 1
            return [*shown, *self.feed("")]
        certain = len(self._held) - _possible_start(self._held)
        prose, self._held = self._held[:certain], self._held[certain:]
        return self._prose(prose)

    def _inside(self, call: ToolStream) -> list[ToolDelta]:
        """The object goes to its own reader; the closing tag counts only behind it, since a string may hold one."""
        deltas = [ToolDelta(d.content, d.name, d.arguments, self._n_calls - 1) for d in call.feed(self._held)]
        _, tag, self._held = call.rest.partition(CLOSE)
        if tag:
            self._call = None
            deltas += self.feed("")
        return deltas

    def _prose(self, text: str) -> list[ToolDelta]:
        if self.called:
            text = text.strip()  # line ends between calls
        return [ToolDelta(content=text)] if text else []


def _possible_start(text: str) -> int:
    """Length of the longest suffix that the opening tag begins with."""
    return next((n for n in range(min(len(OPEN) - 1, len(text)), 0, -1) if OPEN.startswith(text[-n:])), 0)


def _turn(message: Message, param: str, names: Mapping[str, str]) -> Mapping[str, Any]:
    role = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    turn: dict[str, Any] = {"role": role, "content": text_of(message, param), **thought_of(message)}
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _parsed(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    name = message.name or (names.get(message.tool_call_id or "") if role == "tool" else None)
    if name is not None:
        turn["name"] = name
    return turn


def _parsed(arguments: str) -> Any:
    """Templates write arguments by `tojson`, so they want the value, not its text."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
