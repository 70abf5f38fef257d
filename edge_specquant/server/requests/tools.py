"""Function calling for any model: the tools as a system text, and a JSON schema that binds the reply to them.

The model writes one JSON object: {"name": ..., "arguments": {...}} to call, or {"reply": "..."} to answer, each only
when it is allowed. `ToolStream` turns that object, while it grows, into reply text or a call's name and arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import bad_request
from .bodies import ChatRequest, Function, ToolChoice
from .bounds import check_schema
from .json_text import JsonTextDecoder, ValueScanner

_INTRODUCTION = (
    "You can call these functions. To call one, answer with a JSON object "
    '{"name": function name, "arguments": {...}} and nothing else.'
)
_OR_REPLY = ' When no function is needed, answer with {"reply": "your answer"}.'

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

    def json_schema(self) -> dict[str, Any]:
        """The schema of the whole reply: a call, or a text where that is allowed."""
        return self._schema([_object({"reply": {"type": "string"}})] if self.may_reply else [])

    def calls_schema(self) -> dict[str, Any]:
        """The schema of a call."""
        return self._schema([])

    def _schema(self, others: list[dict[str, Any]]) -> dict[str, Any]:
        """Definitions of the functions' own schemas are lifted to the top."""
        definitions: dict[str, Any] = {}
        branches = [*(_call_schema(function, definitions) for function in self.functions), *others]
        schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
        return {**schema, "$defs": definitions} if definitions else schema


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
    for function in functions:
        check_schema(function.parameters or {}, "tools")
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


def _call_schema(function: Function, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(function.parameters or {})
    for word in ("$defs", "definitions"):
        for name, definition in (parameters.pop(word, None) or {}).items():
            definitions[f"{function.name}.{name}"] = _renamed(definition, function.name)
    if not parameters.get("properties") and "$ref" not in parameters:
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    arguments = _renamed({"type": "object", **parameters}, function.name)
    return _object({"name": {"const": function.name}, "arguments": arguments})


def _renamed(node: Any, prefix: str) -> Any:
    """References into a function's own definitions, pointed at their place in the joint schema."""
    if isinstance(node, list):
        return [_renamed(child, prefix) for child in node]
    if not isinstance(node, Mapping):
        return node
    out = {key: _renamed(child, prefix) for key, child in node.items()}
    if isinstance(out.get("$ref"), str):
        out["$ref"] = re.sub(r"^#/(\$defs|definitions)/", f"#/$defs/{prefix}.", out["$ref"])
    return out


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _described(function: Function) -> dict[str, Any]:
    known = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {key: value for key, value in known.items() if value is not None}
