"""Function calling for any model: the tools as a system text, and a grammar that binds the reply to them.

The model writes one JSON object: {"name": ..., "arguments": {...}} to call, or {"reply": "..."} to answer, each only
when it is allowed. `ToolStream` turns that object, while it grows, into reply text or a call's name and arguments.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Protocol

from ...engine.structured.schema import exact
from ...errors import GrammarError
from ..errors import bad_request
from .bodies import ChatRequest, Function, ToolChoice
from .json_text import JsonTextDecoder, ValueScanner

_INTRODUCTION = (
    "You can call these functions. To call one, answer with a JSON object "
    '{"name": function name, "arguments": {...}} and nothing else.'
)
_OR_REPLY = ' When no function is needed, answer with {"reply": "your answer"}.'

_REPLY = '{"reply": '

_CALL_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*')
_REPLY_HEAD = re.compile(r'\s*\{\s*"reply"\s*:\s*"')


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """The tools that a reply may use; `may_reply` when plain text is allowed too."""

    functions: tuple[Function, ...]
    may_reply: bool

    def system_text(self) -> str:
        """What the model is told."""
        lines = [json.dumps(_described(function), ensure_ascii=False) for function in self.functions]
        return "\n".join([_INTRODUCTION + (_OR_REPLY if self.may_reply else ""), *lines])

    def described(self) -> list[dict[str, Any]]:
        """The tools as templates take them."""
        return [{"type": "function", "function": _described(function)} for function in self.functions]

    def schemas(self) -> dict[str, Any]:
        """The arguments' schemas by the words that name them in errors; the grammars call them @s0, @s1 ..."""
        return {_label(function): arguments_schema(function) for function in self.functions}

    def lark(self) -> str:
        """The grammar of the whole reply: a call, or a text where that is allowed."""
        reply = f'{quoted(_REPLY)} %json {{"type": "string"}} {quoted("}")}'
        return "\n".join((f"start: call | {reply}" if self.may_reply else "start: call", self.call_rule()))

    def call_rule(self) -> str:
        """The Lark rule `call`: one function's name with arguments of its schema."""
        heads = (f'{{"name": "{function.name}", "arguments": ' for function in self.functions)
        return "call: " + " | ".join(f"{quoted(head)} @s{i} {quoted('}')}" for i, head in enumerate(heads))


def plan_tools(body: ChatRequest) -> ToolPlan | None:
    """What a request's tools and tool_choice allow; None where no call is possible. Raises ApiError 400."""
    functions = tuple(tool.function for tool in body.tools or ())
    choice = body.tool_choice
    if not functions:
        if choice not in (None, "none", "auto"):
            raise bad_request("tool_choice asks for a tool and there are no tools", "tool_choice")
        return None
    if len({function.name for function in functions}) < len(functions):
        raise bad_request("two tools have the same name", "tools")
    if choice == "none":
        return None
    if isinstance(choice, ToolChoice):
        functions = tuple(function for function in functions if function.name == choice.function.name)
        if not functions:
            raise bad_request(f"tool_choice names '{choice.function.name}', which is no tool here", "tool_choice")
    for i, tool in enumerate(body.tools or ()):
        try:
            exact(arguments_schema(tool.function), about=_label(tool.function))
        except GrammarError as error:
            raise bad_request(str(error), f"tools.{i}.function.parameters") from error
    return ToolPlan(functions, may_reply=choice in (None, "auto"))


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """What a piece of the reply adds: text, or a call's name, or a piece of its arguments; index numbers the calls."""

    content: str = ""
    name: str | None = None
    arguments: str = ""
    index: int = 0


class ToolReader(Protocol):
    """Parts a reply into text and calls while it grows."""

    @property
    def called(self) -> bool:
        """Whether the model calls a function."""
        ...

    def feed(self, text: str) -> list[ToolDelta]:
        """The deltas that are certain now."""
        ...


class ToolStream:
    """Feed it text of the JSON object as it comes. Text that is neither call nor reply (a cut reply) is dropped."""

    def __init__(self) -> None:
        self._head = ""
        self._reply: JsonTextDecoder | None = None
        self._arguments: ValueScanner | None = None

    @property
    def called(self) -> bool:
        """Whether the model calls a function."""
        return self._arguments is not None

    @property
    def rest(self) -> str:
        """What came after the arguments."""
        return "" if self._arguments is None else self._arguments.rest

    def feed(self, text: str) -> list[ToolDelta]:
        """The deltas that are certain now."""
        if self._reply is not None:
            return [ToolDelta(content=part) for part in (self._reply.feed(text),) if part]
        if self._arguments is not None:
            return [ToolDelta(arguments=part) for part in (self._arguments.feed(text),) if part]
        self._head += text
        if found := _CALL_HEAD.match(self._head):
            self._arguments = ValueScanner()
            return [ToolDelta(name=found[1]), *self.feed(self._head[found.end() :])]
        if found := _REPLY_HEAD.match(self._head):
            self._reply = JsonTextDecoder()
            return self.feed(self._head[found.end() :])
        return []


def arguments_schema(function: Function) -> dict[str, Any]:
    """A function's parameters, which are an object; where there are none, an empty one. Raises GrammarError."""
    if function.parameters is None:
        return {"type": "object", "additionalProperties": False}
    given = function.parameters.get("type", "object")
    if given != "object" and "object" not in given:
        raise GrammarError(f"{_label(function)}: 'type' at # is {given!r}; arguments are an object")
    if "$ref" in function.parameters:  # in old drafts nothing may stand beside it
        return function.parameters
    return {**function.parameters, "type": "object"}


def quoted(text: str) -> str:
    """A text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)


def _label(function: Function) -> str:
    return f"tool '{function.name}'"


def _described(function: Function) -> dict[str, Any]:
    known = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {key: value for key, value in known.items() if value is not None}
