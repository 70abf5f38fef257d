"""What a front end asks of the runtime: one reply to one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import UsageError
from .params import SamplingParams, SpeculationParams


@dataclass(frozen=True, slots=True)
class Request:
    """prompt (one user turn), or messages (a conversation), or prompt_tokens (ids, used as they are).

    raw: the prompt is continued as it is, without the chat template. target: a variant, None for the plan's choice.
    max_tokens None is as many as the context holds. stop: texts that end the reply and are not shown.
    earlier_reply: ids of another sibling's reply to the same prompt (a redo); it is verified like one long draft, kept
    as far as the target agrees (its tokens have the origin "agreed"), and gone on with from there.
    """

    prompt: str | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    prompt_tokens: Sequence[int] = ()
    system: str | None = None
    raw: bool = False
    target: str | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: Sequence[str] = ()
    earlier_reply: Sequence[int] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculation: SpeculationParams = field(default_factory=SpeculationParams)

    def __post_init__(self) -> None:
        given = [bool(self.messages), bool(self.prompt_tokens), self.prompt is not None]
        if sum(given) != 1:
            raise UsageError("give exactly one of prompt, messages and prompt_tokens")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise UsageError(f"max_tokens is {self.max_tokens}; it must be 0 or more")
        if self.min_tokens < 0:
            raise UsageError(f"min_tokens is {self.min_tokens}; it must be 0 or more")

    def as_messages(self) -> list[Mapping[str, Any]]:
        """The conversation, system prompt first."""
        head: list[Mapping[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        return [*head, *self.messages] if self.messages else [*head, {"role": "user", "content": self.prompt or ""}]
