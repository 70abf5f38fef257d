"""What a caller may ask of sampling and of speculation. Checked here, obeyed elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import UsageError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from the target's logits; names, meaning and order follow llama.cpp's sampler chain.

    temperature 0 is greedy. top_k 0, top_p 1, typical_p 1, min_p 0, repeat_penalty 1 and the other penalties 0 are off.
    `seed` None varies from call to call, and so do RANDOM_SEEDS, by which llama.cpp's clients say "random"; any other
    int repeats. XTC needs a temperature: a greedy choice is the best token.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    seed: int | None = None
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seed in RANDOM_SEEDS:
            object.__setattr__(self, "seed", None)
        _check("temperature", self.temperature, self.temperature >= 0, "0 (greedy) or more")
        _check("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("min_p", self.min_p, 0 <= self.min_p < 1, "at least 0 and below 1")
        _check("typical_p", self.typical_p, 0 < self.typical_p <= 1, "above 0 and at most 1")
        _check("repeat_penalty", self.repeat_penalty, self.repeat_penalty > 0, "above 0; 1 is off")
        _check("presence_penalty", self.presence_penalty, True, "a finite number")
        _check("frequency_penalty", self.frequency_penalty, True, "a finite number")
        _check("penalty_last_n", self.penalty_last_n, self.penalty_last_n >= -1, "-1 (whole context), 0 (off) or more")
        _check("dry_multiplier", self.dry_multiplier, self.dry_multiplier >= 0, "0 (off) or more")
        _check("dry_base", self.dry_base, self.dry_base >= 1, "1 or more")
        _check("dry_allowed_length", self.dry_allowed_length, self.dry_allowed_length >= 1, "1 or more")
        _check("xtc_probability", self.xtc_probability, 0 <= self.xtc_probability <= 1, "between 0 and 1")
        _check("xtc_threshold", self.xtc_threshold, 0 <= self.xtc_threshold <= 1, "between 0 and 1")
        for token, bias in self.logit_bias.items():
            if math.isnan(bias) or bias == math.inf:
                raise UsageError(f"logit_bias of token {token} is {bias}; it must be finite or -inf (never)")

    @property
    def greedy(self) -> bool:
        """True when the choice is the argmax of the processed logits."""
        return self.temperature == 0

    @property
    def penalises(self) -> bool:
        """True when repetition, presence or frequency penalties are on."""
        return bool(self.repeat_penalty != 1 or self.presence_penalty or self.frequency_penalty)

    @property
    def shapes_logits(self) -> bool:
        """True when something other than temperature and truncation changes the logits (penalties, DRY, bias)."""
        return bool(self.penalises or self.dry_multiplier or self.logit_bias)


@dataclass(frozen=True, slots=True)
class SpeculationParams:
    """Who drafts, how far, and how drafts are judged.

    draft: a variant of the family ("q4"), "lookup", "mtp" (the target's own next-token layer), a chain such as
    "lookup+q4", "none", or None for the plan's choice.
    What a reply's form forces ("grammar") is drafted beside any of them but "none".
    n_draft: draft tokens per round; None lets the controller decide.
    controller: "goodput", "fixed", "entropy" or "speckv"; n_draft given means "fixed".
    accept: "match" (keep a draft token when the target samples the same) or "rejection" (Leviathan et al. 2023).
    strict: decode only at widths that compute the same bits here, so that output depends on model and prompt alone.
    pad: widen a batch to the cheapest width at or above it. transplant: take the target's KV cells over for the draft.
    """

    draft: str | None = None
    n_draft: int | None = None
    controller: str = "goodput"
    accept: str = "match"
    strict: bool = False
    pad: bool = True
    transplant: bool = True

    def __post_init__(self) -> None:
        if self.controller not in CONTROLLERS:
            raise UsageError(f"controller is '{self.controller}'; it must be one of {', '.join(CONTROLLERS)}")
        if self.n_draft is not None:
            _check("n_draft", self.n_draft, 0 <= self.n_draft <= MAX_DRAFT, f"between 0 and {MAX_DRAFT}")
        if self.accept not in ACCEPT_RULES:
            raise UsageError(f"accept is '{self.accept}'; it must be one of {', '.join(ACCEPT_RULES)}")


MAX_DRAFT = 48  # widest draft one round may carry; contexts reserve output rows for it
RANDOM_SEEDS = (-1, 0xFFFFFFFF)  # LLAMA_DEFAULT_SEED, signed and not
ACCEPT_RULES = ("match", "rejection")
NOT_SIBLINGS = ("none", "lookup", "mtp", "grammar")  # what may draft besides a family's siblings
FREE_DRAFTERS = ("lookup", "grammar")  # those whose drafts cost no forward
CONTROLLERS = ("goodput", "fixed", "entropy", "speckv")


def _check(name: str, value: float, ok: bool, allowed: str) -> None:
    if not ok or math.isnan(value) or math.isinf(value):
        raise UsageError(f"{name} is {value}; it must be {allowed}")
