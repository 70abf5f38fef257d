"""Messages to prompt token ids by the model's own chat template; what a caller says forges nothing.

Every string of a caller keeps its origin through the template (`origin.py`), and only what the template wrote is
parsed for control tokens (`control_tokens.py`). Knows no model and no cache.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import jinja2

from ...errors import TemplateError
from ...native.protocol import Marker, Model, Vocab
from .control_tokens import Known, encode, structure, with_bos
from .environment import ChatEnvironment
from .origin import Text, as_text, marked, runs_of

Message = Mapping[str, Any]
ReplyIds = Callable[[Message, str], Sequence[int] | None]
"""The ids that a field ("content" or "reasoning_content") of an assistant message was generated with, or None."""

MAX_RENDER_S = 2.0

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A reply follows "Assistant:" as it was written, its own leading space included, so that its cells fit the next turn.
PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:"
    "{{ '' if m['as_written'] or m['role'] == 'assistant' and m['content'][:1] in [' ', '\n'] else ' ' }}"
    "{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

# Templates build markers from roles ('<|' + role + '|>'), so these words, and no others, may be part of one.
_ROLES = frozenset(
    ("system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "environment", "observation")
)
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")  # the names in use; transformers takes these too
_TOOL_USE, _DEFAULT = "tool_use", "default"


def templates_of(model: Model) -> dict[str, str] | None:
    """The model's own templates by name, None where it has none."""
    known = {_DEFAULT: model.chat_template, _TOOL_USE: model.tool_template}
    return {name: source for name, source in known.items() if source} or None


class ChatTemplate:
    """A compiled template, or several by name: with tools "tool_use" is taken where there is one, else "default".

    source None takes ChatML where the vocabulary has its markers, else plain roles. Compiling is put off until first
    use, so that a model with a broken template still loads. `fallback_reason` says why the model's own template is not
    used, or is None.
    """

    def __init__(self, source: str | Mapping[str, str] | None, vocab: Vocab) -> None:
        self._vocab = vocab
        self._special_texts = {
            name: marked(vocab.piece(token, special=True).decode("utf-8", "replace"), None)
            for name, token in vocab.special_tokens.items()
        }
        self.fallback_reason: str | None = None
        if not source:
            source = CHATML if any(marker.text == "<|im_start|>" for marker in vocab.markers) else PLAIN
            self.fallback_reason = "the model has no chat template"
        self._sources = {_DEFAULT: source} if isinstance(source, str) else dict(source)
        self._compiled: dict[str, jinja2.Template] = {}

    @property
    def sources(self) -> Mapping[str, str]:
        """The templates' texts by name."""
        return self._sources

    def tokens(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        reply_ids: ReplyIds | None = None,
        **template_args: Any,
    ) -> list[int]:
        """Prompt token ids; arguments as of `render`. Raises TemplateError.

        reply_ids(message, field) gives the ids an assistant message was generated with, or None: they are used as they
        are, so that the KV cells of the reply fit the next turn, whatever tokenizing its text again would give.
        """
        known = _known_replies(messages, reply_ids) if reply_ids else {}
        as_written = [
            {**message, "as_written": True} if f"messages[{i}].content" in known else message
            for i, message in enumerate(messages)
        ]
        text = self.render(as_written, tools=tools, **template_args)
        return with_bos(encode(text, self._vocab, self.markers(tools), known), self._vocab)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool | None = None,
        **template_args: Any,
    ) -> Text:
        """The prompt as text that knows its origins. Raises TemplateError, with the template's own words if it refuses.

        A last message of role assistant is continued (None), or followed by a new turn (False). Other arguments are
        the template's variables: a caller's, like messages and tools.
        """
        last = messages[-1] if messages else {}
        continued = None
        if _is_open(last) if continue_final_message is None else continue_final_message:
            continued = _field_to_continue(last)
            messages = messages if continued else messages[:-1]  # a reply without a word yet is one to be opened
        variables = {
            "documents": None,
            **{name: marked(value, name) for name, value in template_args.items()},
            "messages": [_marked_message(message, i) for i, message in enumerate(messages)],
            "tools": marked(tools, "tools") if tools else None,
            "add_generation_prompt": add_generation_prompt and continued is None,
            **self._special_texts,
        }
        text = self._rendered(self._template(tools), variables)
        return text if continued is None else _cut_behind(text, f"messages[{len(messages) - 1}].{continued}")

    def source(self, tools: object = None) -> str:
        """The template that a conversation with or without tools takes."""
        return self._sources[self._name(tools)]

    def markers(self, tools: object = None) -> tuple[Marker, ...]:
        """What only the template may write."""
        return structure(self._vocab, self.source(tools))

    def _name(self, tools: object) -> str:
        if tools and _TOOL_USE in self._sources:
            return _TOOL_USE
        return _DEFAULT if _DEFAULT in self._sources else next(iter(self._sources))

    def _template(self, tools: object) -> jinja2.Template:
        name = self._name(tools)
        if name not in self._compiled:
            try:
                self._compiled[name] = ChatEnvironment().from_string(self._sources[name])
            except (jinja2.TemplateError, RecursionError) as error:
                raise TemplateError(f"the model's chat template is broken: {error}; try --raw") from error
        return self._compiled[name]

    def _rendered(self, template: jinja2.Template, variables: Mapping[str, Any]) -> Text:
        try:
            with _deadline(MAX_RENDER_S):
                return as_text(template.render(variables))
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template refused these messages: {error}; try --raw") from error
        except (
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise TemplateError(f"the chat template failed: {type(error).__name__}: {error}; try --raw") from error


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Ends a template that loops: the interpreter asks before every line of it and every call from it. Only this thread
    is watched.
    """
    end = time.monotonic() + seconds

    def watch(frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        if time.monotonic() > end:
            raise jinja2.TemplateError(f"it ran for more than {seconds:g} seconds")
        return watch if frame.f_code.co_filename == "<template>" else None

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def _marked_message(message: Message, i: int) -> dict[str, Any]:
    """The message as the template sees it: every string marked as its caller's, but for the role's known word."""
    given = {key: value for key, value in message.items() if key != "token_ids"}
    thought = next((given[name] for name in _THOUGHTS if given.get(name) is not None), None)
    if thought is not None:
        thought = marked(thought, f"messages[{i}].{_THOUGHTS[0]}")
        given = {"thinking": thought, **given, _THOUGHTS[0]: thought}
    if given.get("role") in _ROLES:
        given["role"] = marked(given["role"], None)
    made: dict[str, Any] = marked(given, f"messages[{i}]")
    return made


def _known_replies(messages: Sequence[Message], reply_ids: ReplyIds) -> Known:
    known: dict[str | None, tuple[str, Sequence[int]]] = {}
    for i, message in enumerate(messages):
        for field in ("content", "reasoning_content") if message.get("role") == "assistant" else ():
            said = message.get(field)
            ids = reply_ids(message, field) if isinstance(said, str) else None
            if ids:
                known[f"messages[{i}].{field}"] = (str(said), ids)
    return known


def _is_open(message: Message) -> bool:
    """Whether a conversation that ends so is to be gone on with in the same message."""
    return message.get("role") == "assistant" and not message.get("tool_calls")


def _field_to_continue(message: Message) -> str | None:
    """The field whose text the reply goes on with; None where nothing was said yet."""
    for field in ("content", *_THOUGHTS):
        said = message.get(field)
        parts = said if isinstance(said, (list, tuple)) else [said]
        texts = (part.get("text") if isinstance(part, Mapping) else part for part in parts)
        if any(isinstance(text, str) and text.strip() for text in texts):
            return "content" if field == "content" else _THOUGHTS[0]
    return None


def _cut_behind(text: Text, origin: str) -> Text:
    """The text up to the last character of this origin. Raises TemplateError where there is none."""
    at, end = 0, None
    for n, whose in runs_of(text):
        at += n
        if whose is not None and (whose == origin or whose.startswith((f"{origin}[", f"{origin}."))):
            end = at
    if end is None:
        raise TemplateError("the chat template leaves out the message that is to be continued; try --raw")
    return text[:end]
