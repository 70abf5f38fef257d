"""Messages to prompt tokens by the model's own chat template (sandboxed Jinja), BOS exactly once.

What a user types is tokenized as plain text: a control marker in a message forges nothing.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import TemplateError
from ..native.protocol import Vocab

Message = Mapping[str, Any]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

# Private-use characters that bracket a message's content through the template.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_MARKED = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)


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

    def tokens(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **extra: Any) -> list[int]:
        """Prompt token ids. Raises TemplateError."""
        forged = any(marker in str(m.get("content", "")) for m in messages for marker in self._vocab.control_markers)
        if forged:
            marked = [dict(m) | {"content": f"{_OPEN}{m.get('content', '')}{_CLOSE}"} for m in messages]
            ids = self._piecewise(self.render(marked, add_generation_prompt=add_generation_prompt, **extra))
        else:
            text = self.render(messages, add_generation_prompt=add_generation_prompt, **extra)
            ids = self._vocab.tokenize(text, parse_special=True)
        return with_bos(ids, self._vocab)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **extra: Any) -> str:
        """The prompt as text. Raises TemplateError with the template's own words where it refuses."""
        try:
            return self._template().render(
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

    def _piecewise(self, text: str) -> list[int]:
        """Template text with control markers parsed, message contents without."""
        ids: list[int] = []
        for i, part in enumerate(_MARKED.split(text)):
            if part:
                ids += self._vocab.tokenize(part, parse_special=i % 2 == 0)
        return ids


def with_bos(ids: list[int], vocab: Vocab) -> list[int]:
    """The ids with BOS in front where the vocabulary wants one and the template did not write it."""
    if not vocab.add_bos or vocab.bos is None:
        return ids
    return ids if ids[:1] == [vocab.bos] else [vocab.bos, *ids]


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
