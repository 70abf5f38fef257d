"""Requests to prompt token ids: the model's chat template, replies by the ids they were generated with; and, for a
model that thinks, in which part of a reply the prompt ends.

Knows no caches and no slots. For any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.prompts.control_tokens import with_bos
from ...engine.prompts.shorten import Shorten, forget_older_half, n_forgotten, split_turns
from ...engine.prompts.template import ChatTemplate, templates_of
from ...engine.thoughts.parts import Parts, parts_of
from ...engine.thoughts.style import Style, Wish, read_style, resolve
from ...native.protocol import Model
from ...request import Request
from .reply_tokens import ReplyTokens

_N_AROUND = 8  # tokens a template puts around a message, about


class Prompts:
    """One family's: siblings share vocabulary and template. `replies` is told what was generated."""

    def __init__(self) -> None:
        self.replies = ReplyTokens()
        self._template: ChatTemplate | None = None
        self._template_of: Model | None = None
        self._lock = threading.Lock()
        self._styles: dict[str, Style | None] = {}
        self.notices: list[str] = []

    def prepare(self, request: Request, model: Model) -> tuple[list[int], Parts | None]:
        """The prompt's ids, and where its reply begins. `notices` says what the model cannot. Raises TemplateError.

        What is given raw is continued as it is: nobody knows what is a thought in it.
        """
        self.notices = []
        ids = self.tokens(request, model)
        if request.raw:
            return ids, None
        style = self._style(request, model)
        _, wish, told = resolve(_wish(request), style, request.template_args)
        self.notices = list(told)
        if style is None:
            return ids, None
        last = request.as_messages()[-1]
        continues = last.get("role") == "assistant" and request.template_args.get("continue_final_message") is not False
        return ids, parts_of(style, model.vocab, ids, wish, continues=continues)

    def tokens(self, request: Request, model: Model) -> list[int]:
        """The prompt's ids. Raises TemplateError."""
        if request.raw:
            return with_bos(model.vocab.tokenize(request.prompt or "", parse_special=True), model.vocab)
        return self._render(request.as_messages(), request, model)

    def shortener(self, request: Request, model: Model) -> Shorten:
        """What a full context forgets of this request: whole turns, re-rendered without them; of raw text, a half."""
        if request.raw or request.prompt_tokens:
            return forget_older_half(n_keep=1)
        head, turns = split_turns(request.as_messages())

        def size(messages: Sequence[Mapping[str, Any]]) -> int:
            return sum(len(model.vocab.tokenize(str(message.get("content")))) + _N_AROUND for message in messages)

        def shorten(history: Sequence[int], n_prompt: int, n_ctx: int) -> tuple[list[int], int] | None:
            said = history[n_prompt:]
            n_gone = n_forgotten([size(turn) for turn in turns], size(head), len(said), n_ctx)
            for first in range(n_gone, len(turns)):
                kept = [message for turn in turns[first:] for message in turn]
                prompt = self._render([*head, *kept], request, model)
                if len(prompt) + len(said) < n_ctx and len(prompt) < n_prompt:
                    return [*prompt, *said], len(prompt)
            return None

        return shorten

    def _render(self, messages: Sequence[Mapping[str, Any]], request: Request, model: Model) -> list[int]:
        def reply_ids(message: Mapping[str, Any], field: str) -> Sequence[int] | None:
            return self.replies.find(message, model.vocab, field)

        with self._lock:
            template = self._template_for(model)
            args, _, _ = resolve(_wish(request), self._style(request, model), request.template_args)
            return template.tokens(messages, tools=request.tools, reply_ids=reply_ids, **args)

    def _style(self, request: Request, model: Model) -> Style | None:
        source = self._template_for(model).source(request.tools)
        if source not in self._styles:
            self._styles[source] = read_style(source, model.vocab)
        return self._styles[source]

    def _template_for(self, model: Model) -> ChatTemplate:
        if self._template is None or self._template_of is not model:  # a vocabulary goes with its model
            self._template, self._template_of = ChatTemplate(templates_of(model), model.vocab), model
            self._styles.clear()
        return self._template


def _wish(request: Request) -> Wish:
    return Wish(request.think, request.think_budget, request.reasoning_effort)
