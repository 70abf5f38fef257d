"""OpenAI's messages to the plain turns that a chat template reads, and the repair of a list that a template refuses.

Gives dicts of role and content (text). Tool calls and tool results become text, for templates that know no tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import bad_request
from .bodies import Message

Turn = Mapping[str, Any]


def turns(messages: Sequence[Message]) -> list[Turn]:
    """One turn a message. Raises ApiError 400 for content that is not text."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
    return [_turn(message, f"messages.{i}", names) for i, message in enumerate(messages)]


def repaired(given: Sequence[Turn]) -> list[Turn] | None:
    """The same conversation for a template that knows no system role and wants turns to alternate, or None.

    Neighbours of one role are joined (a cancelled reply leaves two user turns); the system text goes in front of the
    first user turn.
    """
    system = [str(turn["content"]) for turn in given if turn["role"] == "system"]
    rest = [turn for turn in given if turn["role"] != "system"]
    if rest and rest[0]["role"] != "user":
        rest.insert(0, {"role": "user", "content": ""})
    joined: list[Turn] = []
    for turn in rest:
        if joined and joined[-1]["role"] == turn["role"]:
            joined[-1] = {**joined[-1], "content": _paragraphs(joined[-1]["content"], turn["content"])}
        else:
            joined.append(turn)
    if joined and system:
        joined[0] = {**joined[0], "content": _paragraphs(*system, joined[0]["content"])}
    return joined if joined and joined != list(given) else None


def tool_call_text(name: str, arguments: str) -> str:
    """A call as a model writes it: the JSON object that the tools' schema asks for."""
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        parsed = arguments
    return json.dumps({"name": name, "arguments": parsed}, ensure_ascii=False)


def _turn(message: Message, param: str, names: Mapping[str, str]) -> Turn:
    text = text_of(message, param)
    if message.role in ("tool", "function"):
        name = names.get(message.tool_call_id or "", message.name or "the tool")
        return {"role": "user", "content": f"Result of {name}: {text}"}
    if message.tool_calls:
        calls = [tool_call_text(call.function.name, call.function.arguments) for call in message.tool_calls]
        text = _paragraphs(text, *calls)
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": text, **thought_of(message)}


def thought_of(message: Message) -> dict[str, str]:
    """What an assistant thought before its message, in the field that templates read; they decide what of it stays."""
    said = message.reasoning_content if message.role == "assistant" else None
    return {"reasoning_content": said} if said else {}


def text_of(message: Message, param: str) -> str:
    """The text of a message's content. Raises ApiError 400 where there is none, or something else."""
    if message.content is None:
        if message.role == "assistant":
            return ""
        raise bad_request(f"{param} has no content", f"{param}.content")
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for i, part in enumerate(message.content):
        if part.type != "text" or part.text is None:
            raise bad_request(
                "this model reads text only; leave out images, audio and files", f"{param}.content.{i}.type"
            )
        texts.append(part.text)
    return "\n".join(texts)


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
