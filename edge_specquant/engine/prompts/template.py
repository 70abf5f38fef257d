"""Messages to prompt tokens by the model's own chat template (sandboxed Jinja), BOS exactly once.

What a user types is tokenized as plain text: a control marker in a message forges nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...errors import TemplateError
from ...native.protocol import Vocab

Message = Mapping[str, Any]
ReplyIds = Callable[[Message], Sequence[int] | None]

MAX_RENDER_S = 2.0

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Private-use characters that bracket a message's content through the template.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"

# A reply follows "Assistant:" as it was written, its own leading space included, so that its cells fit the next turn.
PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:"
    "{{ '' if m['role'] == 'assistant' and m['content'][:1] in [' ', '\n', '" + _OPEN + "'] else ' ' }}"
    "{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

_MARKED = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)
_BRACKETS = re.compile(f"[{_OPEN}{_CLOSE}]")


class ChatTemplate:
    """A compiled template. source None takes ChatML where the vocabulary has its markers, else plain roles.

    Compiling is put off until first use, so that a model with a broken template still loads. `fallback_reason` says
    why the model's own template is not used, or is None.
    """

    def __init__(self, source: str | None, vocab: Vocab) -> None:
        self._vocab = vocab
        self._bos_text = _special_text(vocab, vocab.bos)
        self._eos_text = _special_text(vocab, vocab.eos)
        self.fallback_reason: str | None = None
        if source is None:
            source = CHATML if "<|im_start|>" in vocab.control_markers else PLAIN
            self.fallback_reason = "the model has no chat template"
        self._source = source
        self._compiled: jinja2.Template | None = None

    def tokens(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        reply_ids: ReplyIds | None = None,
        **extra: Any,
    ) -> list[int]:
        """Prompt token ids. Raises TemplateError.

        reply_ids(message) gives the ids an assistant message was generated with, or None: they are used as they are,
        so that the KV cells of the reply fit the next turn, whatever tokenizing its text again would give.
        """
        forging = {_content(m) for m in messages if any(x in _content(m) for x in self._vocab.control_markers)}
        known = _known_replies(messages, reply_ids) if reply_ids else {}
        for to_bracket in (forging | known.keys(), forging):
            marked = [_bracketed(m, brackets=_content(m) in to_bracket) for m in messages]
            text = self.render(marked, add_generation_prompt=add_generation_prompt, **extra)
            if not _BRACKETS.search(_MARKED.sub("", text)):
                return with_bos(self._piecewise(text, known), self._vocab)
        # The template cuts a message in two that holds a control marker: nothing of it may be parsed.
        return with_bos(self._vocab.tokenize(_BRACKETS.sub("", text)), self._vocab)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **extra: Any) -> str:
        """The prompt as text. Raises TemplateError with the template's own words where it refuses."""
        template = self._template()
        try:
            with _deadline(MAX_RENDER_S):
                return template.render(
                    messages=list(messages),
                    add_generation_prompt=add_generation_prompt,
                    bos_token=self._bos_text,
                    eos_token=self._eos_text,
                    **extra,
                )
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template refused these messages: {error}; try --raw") from error
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            raise TemplateError(f"the chat template failed: {type(error).__name__}: {error}; try --raw") from error

    def _template(self) -> jinja2.Template:
        if self._compiled is None:
            try:
                self._compiled = _environment().from_string(self._source)
            except jinja2.TemplateError as error:
                raise TemplateError(f"the model's chat template is broken: {error}; try --raw") from error
        return self._compiled

    def _piecewise(self, text: str, known: Mapping[str, Sequence[int]]) -> list[int]:
        """Template text with control markers parsed, message contents without, known replies by their own ids."""
        ids: list[int] = []
        for i, part in enumerate(_MARKED.split(text)):
            is_content = i % 2 == 1
            if is_content and part in known:
                ids += known[part]
            elif part:
                ids += self._vocab.tokenize(part, parse_special=not is_content)
        return ids


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Ends a template that loops: the interpreter asks before every line of it. Only this thread is watched."""
    end = time.monotonic() + seconds

    def watch(frame: FrameType, event: str, argument: object) -> Any:
        del frame, event, argument
        if time.monotonic() > end:
            raise jinja2.TemplateError(f"it ran for more than {seconds:g} seconds")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def with_bos(ids: list[int], vocab: Vocab) -> list[int]:
    """The ids with BOS in front where the vocabulary wants one and the template did not write it."""
    if not vocab.add_bos or vocab.bos is None:
        return ids
    return ids if ids[:1] == [vocab.bos] else [vocab.bos, *ids]


def _content(message: Message) -> str:
    return str(message.get("content", ""))


def _known_replies(messages: Sequence[Message], reply_ids: ReplyIds) -> dict[str, Sequence[int]]:
    """Ids by content, for the replies whose ids are known and whose text has no brackets of its own."""
    known: dict[str, Sequence[int]] = {}
    for message in messages:
        ids = reply_ids(message) if message.get("role") == "assistant" else None
        if ids and not _BRACKETS.search(_content(message)):
            known[_content(message)] = ids
    return known


def _bracketed(message: Message, *, brackets: bool) -> Message:
    """The message with its content in brackets if so wished; those a user typed are taken out: they could end ours."""
    content = _content(message)
    if not brackets and not _BRACKETS.search(content):
        return message
    clean = _BRACKETS.sub("", content)
    return dict(message) | {"content": f"{_OPEN}{clean}{_CLOSE}" if brackets else clean}


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _special_text(vocab: Vocab, token: int | None) -> str:
    return "" if token is None else vocab.piece(token, special=True).decode("utf-8", "replace")
