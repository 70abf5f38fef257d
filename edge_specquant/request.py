"""What a front end asks of the runtime: one reply to one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import UsageError
from .params import SamplingParams, SpeculationParams

MAX_LOGPROBS = 20
ON_FULL = ("stop", "shift")
THINK = ("auto", "on", "off")
TEMPLATE_OWN = frozenset({"messages", "tools", "reply_ids", "bos_token", "eos_token"})


@dataclass(frozen=True, slots=True)
class Request:
    """prompt (one user turn), or messages (a conversation), or prompt_tokens (ids, used as they are).

    raw: the prompt is continued as it is, without the chat template. target: a variant, None for the plan's choice.
    max_tokens None is as many as the context holds. stop: texts that end the reply and are not shown.
    One of these binds the whole reply: schema, a JSON schema (a mapping, True, or a pydantic model; {} is any JSON
    value; json_schema is its older name); regex; lark, a Lark grammar in llguidance's dialect, in which @s0, @s1 ...
    stand for the lark_schemas in their order (their names are told in errors); grammar, in GBNF. logprobs:
    log-probabilities of each token and of that many alternatives; prompt_logprobs: the same of the prompt's own
    tokens, on the first event (max_tokens 0 asks for nothing else). on_full: "stop" ends a reply where the context is
    full, "shift" drops the oldest turns but the system prompt and goes on. policy: a routing policy that fills in what
    is not named here.
    tools: functions (OpenAI's objects) for a chat template that describes them to the model. template_args: more
    variables of the chat template, by the names that transformers' apply_chat_template takes (enable_thinking,
    documents, add_generation_prompt, continue_final_message ...). A last message of role assistant is continued, not
    answered; prefill adds one with this text.
    think: whether a model that thinks does so, "on", "off" or "auto" (its own way); think_budget: tokens after which
    its thought is closed and the answer begins; reasoning_effort: a level its template knows ("none" is off). Stop
    texts, grammars and schemas bind the answer alone.
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
    grammar: str | None = None
    regex: str | None = None
    lark: str | None = None
    lark_schemas: Mapping[str, Any] = field(default_factory=dict)
    schema: Any = None
    json_schema: Mapping[str, Any] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    on_full: str = "stop"
    policy: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    template_args: Mapping[str, Any] = field(default_factory=dict)
    prefill: str | None = None
    think: str = "auto"
    think_budget: int | None = None
    reasoning_effort: str | None = None
    earlier_reply: Sequence[int] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculation: SpeculationParams = field(default_factory=SpeculationParams)

    def __post_init__(self) -> None:
        given = [bool(self.messages), bool(self.prompt_tokens), self.prompt is not None]
        if sum(given) != 1:
            raise UsageError("give exactly one of prompt, messages and prompt_tokens")
        if not self.prompt_tokens and self._says_nothing():
            raise UsageError("the prompt is empty; say something")
        if self.raw and (self.prefill or self.template_args):
            raise UsageError("raw leaves the chat template out: put the beginning of the reply into the prompt itself")
        if taken := sorted(TEMPLATE_OWN & set(self.template_args)):
            raise UsageError(
                f"template_args has '{taken[0]}', which the chat template gets from elsewhere; leave it out"
            )
        if self.max_tokens is not None and self.max_tokens < 0:
            raise UsageError(f"max_tokens is {self.max_tokens}; it must be 0 or more")
        if self.min_tokens < 0:
            raise UsageError(f"min_tokens is {self.min_tokens}; it must be 0 or more")
        self._take_schema()
        for name in ("logprobs", "prompt_logprobs"):
            n = getattr(self, name)
            if n is not None and not 0 <= n <= MAX_LOGPROBS:
                raise UsageError(f"{name} is {n}; it must be between 0 and {MAX_LOGPROBS}")
        if self.think not in THINK:
            raise UsageError(f"think is '{self.think}'; it must be one of {', '.join(THINK)}")
        if self.think_budget is not None and self.think_budget < 0:
            raise UsageError(f"think_budget is {self.think_budget}; it must be 0 or more")
        if self.on_full not in ON_FULL:
            raise UsageError(f"on_full is '{self.on_full}'; it must be one of {', '.join(ON_FULL)}")

    def _says_nothing(self) -> bool:
        if self.prompt is not None:
            return not (self.prompt if self.raw else self.prompt.strip())
        return not any(message.get("content") or message.get("tool_calls") for message in self.messages)

    def _take_schema(self) -> None:
        if self.json_schema is not None and self.schema is not None:
            raise UsageError("schema and json_schema are one and the same; give schema")
        given = self.json_schema if self.schema is None else self.schema
        dump = getattr(given, "model_json_schema", None)  # a pydantic model, whoever's pydantic it is
        object.__setattr__(self, "schema", dump() if callable(dump) else given)
        object.__setattr__(self, "json_schema", None)
        if not isinstance(self.schema, (Mapping, bool, type(None))):
            raise UsageError(f"schema is {type(given).__name__}; give a JSON schema or a pydantic model")
        forms = [name for name in ("schema", "regex", "lark", "grammar") if getattr(self, name) is not None]
        if len(forms) > 1:
            raise UsageError(f"give {forms[0]} or {forms[1]}, not both: one of them binds the whole reply")

    def as_messages(self) -> list[Mapping[str, Any]]:
        """The conversation, system prompt first."""
        head: list[Mapping[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        said = self.messages or [{"role": "user", "content": self.prompt or ""}]
        return [*head, *said, *([{"role": "assistant", "content": self.prefill}] if self.prefill else [])]
