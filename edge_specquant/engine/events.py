"""What a reply is made of: one event a token, and a last one that says how it ended.

Plain frozen values that any process can pickle. Imports nothing heavy: a front end that only reads events stays light.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .stats import SpeculationStats


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities under the target's raw softmax: of the token, and of the likeliest ones, best first.

    processed is the token's under the distribution it was drawn from (penalties, truncation, temperature, grammar).
    """

    logprob: float
    processed: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of the prompt and its log-probability after those before it; None for the first."""

    token_id: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of a reply, or its end.

    text may be empty while a character or a possible stop string is incomplete; the texts joined are the answer, those
    of `thought` what the model thought before it. part says which of the two the token belongs to, "thought" or
    "answer"; markers and white space between them count as thought.
    The last event has no token: finish_reason is "stop", "length", "cancelled" or "interrupted", and stats is set
    (None when the engine died). note is a sentence for the user: what went wrong, or what the reply had to do without.
    route is the router's record on the last event, where a policy was asked for. prompt: the scored tokens of the
    prompt, on the first event, where they were asked for. end_token: on the last event, the token that ended the reply,
    with its log-probability in logprobs where those were asked for. n_draft: on the first token of a round that had a
    draft, its length.
    """

    text: str
    token_id: int | None = None
    origin: str | None = None
    finish_reason: str | None = None
    stats: SpeculationStats | None = None
    note: str | None = None
    logprobs: TokenLogprobs | None = None
    route: dict[str, Any] | None = None
    prompt: tuple[PromptToken, ...] | None = None
    end_token: int | None = None
    n_draft: int | None = None
    part: str = "answer"
    thought: str = ""
