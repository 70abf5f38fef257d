"""Requests to prompt token ids: the model's chat template, replies by the ids they were generated with.

Knows no caches and no slots. Callers keep two threads from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.prompts.encoding import with_bos
from ...engine.prompts.template import ChatTemplate
from ...native.protocol import Model
from ...request import Request
from .reply_tokens import ReplyTokens


class Prompts:
    """One family's: siblings share vocabulary and template. `replies` is told what was generated."""

    def __init__(self) -> None:
        self.replies = ReplyTokens()
        self._template: ChatTemplate | None = None
        self._template_of: Model | None = None

    def tokens(self, request: Request, model: Model) -> list[int]:
        """The prompt's ids. Raises TemplateError."""
        if request.raw:
            return with_bos(model.vocab.tokenize(request.prompt or "", parse_special=True), model.vocab)
        return self._render(request.as_messages(), request, model)

    def _render(self, messages: Sequence[Mapping[str, Any]], request: Request, model: Model) -> list[int]:
        def reply_ids(message: Mapping[str, Any], field: str) -> Sequence[int] | None:
            return self.replies.find(message, model.vocab) if field == "content" else None

        template = self._template_for(model)
        return template.tokens(messages, tools=request.tools, reply_ids=reply_ids, **request.template_args)

    def _template_for(self, model: Model) -> ChatTemplate:
        if self._template is None or self._template_of is not model:  # a vocabulary goes with its model
            self._template, self._template_of = ChatTemplate(model.chat_template, model.vocab), model
        return self._template
