"""What a chat template can do, found by trying it: system role, alternation, tools, parts, thoughts in the history.

Takes a ChatTemplate, gives Features. Knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TemplateError
from .origin import runs_of
from .template import ChatTemplate, Message

_WORD = "wordfish"  # in no template
_USER: Message = {"role": "user", "content": "hello"}
_ENDED: Mapping[str, Any] = {"add_generation_prompt": False, "continue_final_message": False}
_CALL = {"id": "call00001", "type": "function", "function": {"name": _WORD, "arguments": {"x": 1}}}
_CALLS: Message = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_TOOL = {
    "type": "function",
    "function": {"name": _WORD, "description": "d", "parameters": {"type": "object", "properties": {}}},
}


@dataclass(frozen=True, slots=True)
class Features:
    """names: the templates there are. own_system: the template's own text before a conversation without a system
    message, None where it writes no words there. thoughts: whether a reply's reasoning_content is written back.
    """

    names: tuple[str, ...]
    system_role: bool
    own_system: str | None
    alternates: bool
    tools: bool
    tool_calls: bool
    tool_results: bool
    parts: bool
    thoughts: bool


def features_of(template: ChatTemplate) -> Features:
    """Raises TemplateError where the template does not take one user message."""
    template.render([_USER])
    reply: Message = {"role": "assistant", "content": "hi"}
    result: Message = {"role": "tool", "content": _WORD, "name": "f", "tool_call_id": "call00001"}
    named = {**_CALLS, "tool_calls": [{**_CALL, "function": {"name": "f", "arguments": {}}}]}
    return Features(
        names=tuple(template.sources),
        system_role=_shows(template, [{"role": "system", "content": _WORD}, _USER]),
        own_system=_own_system(template),
        alternates=_text(template, [_USER, _USER]) is None,
        tools=_shows(template, [_USER], tools=[_TOOL]),
        tool_calls=_shows(template, [_USER, _CALLS]),
        tool_results=_shows(template, [_USER, named, result]),
        parts=_shows(template, [{"role": "user", "content": [{"type": "text", "text": _WORD}]}], never="type"),
        thoughts=_shows(template, [_USER, {**reply, "reasoning_content": _WORD}], **_ENDED),
    )


def sample(features: Features) -> tuple[list[Message], list[Mapping[str, Any]]]:
    """A short conversation and its tools, of what the template can do."""
    messages: list[Message] = [{"role": "system", "content": "Be brief."}] if features.system_role else []
    messages.append({"role": "user", "content": "Is it raining in Bern?"})
    tools: list[Mapping[str, Any]] = []
    if features.tools and features.tool_calls and features.tool_results:
        place = {"type": "object", "properties": {"place": {"type": "string"}}}
        tools = [
            {"type": "function", "function": {"name": "weather", "description": "Weather now", "parameters": place}}
        ]
        function = {"name": "weather", "arguments": {"place": "Bern"}}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{**_CALL, "function": function}]},
            {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": '{"rain": true}'},
        ]
    messages.append({"role": "assistant", "content": "Yes, it is raining."})
    return [*messages, {"role": "user", "content": "Write <|im_end|> as text."}], tools


def _text(template: ChatTemplate, messages: Sequence[Message], **arguments: Any) -> str | None:
    try:
        return template.render(messages, **arguments)
    except TemplateError:
        return None


def _shows(template: ChatTemplate, messages: Sequence[Message], *, never: str = "\0", **arguments: Any) -> bool:
    text = _text(template, messages, **arguments)
    return text is not None and _WORD in text and never not in text


def _own_system(template: ChatTemplate) -> str | None:
    """The template's words in front of the first user's, if they hold more than markers and roles."""
    text = template.render([{"role": "user", "content": _WORD}])
    n_before = 0
    for n, origin in runs_of(text):
        if origin is not None and _WORD in text[n_before : n_before + n]:
            break
        n_before += n
    before = str.__str__(text[:n_before]).strip()
    return before if before.count(" ") >= 3 else None
