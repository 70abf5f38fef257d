"""Signals: features brought to a common scale of 0 to 1, so that weights can be compared and thresholds read.

Takes `Features`, gives numbers; the other way round, tells which value of a feature gives a wanted signal (which is
how the nearest flip is found). Every signal grows with its feature. Knows no weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..features.features import Features
from ..features.language import NO_WORDS


@dataclass(frozen=True, slots=True)
class Signal:
    """One scale: the feature's field, the value at which the signal is 1, and how the way there bends.

    unit names one step of the feature in a sentence ("more tokens").
    """

    field: str
    full: float
    unit: str
    log: bool = False
    whole: bool = False

    def value(self, features: Features) -> float:
        """0 to 1; unknown (None) is 0."""
        raw = getattr(features, self.field)
        return self.of(0.0 if raw is None else float(raw))

    def of(self, raw: float) -> float:
        """The signal of a feature value."""
        share = math.log1p(max(raw, 0.0)) / math.log1p(self.full) if self.log else raw / self.full
        return min(1.0, max(0.0, share))

    def feature_at(self, share: float) -> float:
        """The feature value whose signal is `share` (0 to 1)."""
        return math.expm1(share * math.log1p(self.full)) if self.log else share * self.full


SIGNALS: dict[str, Signal] = {
    "length": Signal("n_tokens", 2048, "tokens", log=True, whole=True),
    "depth": Signal("depth", 12, "levels of sentence tree"),
    "clauses": Signal("clauses", 6, "clauses a sentence"),
    "sentence": Signal("sentence_words", 40, "words a sentence"),
    "entities": Signal("entity_density", 0.4, "names a word"),
    "code": Signal("code_share", 1, "share of code"),
    "digits": Signal("digit_share", 0.3, "share of digits"),
    "math": Signal("math_share", 0.4, "share of formulas"),
    "questions": Signal("n_questions", 6, "questions", whole=True),
    "demands": Signal("n_demands", 5, "demands", whole=True),
    "output": Signal("requested_tokens", 1024, "requested tokens", log=True, whole=True),
    "history": Signal("history_turns", 20, "turns", log=True, whole=True),
}
FOREIGN = "foreign"  # 1 for any language but English; no flip is offered for it
NAMES = (*SIGNALS, FOREIGN)


def values(features: Features) -> dict[str, float]:
    """Every signal of one prompt, by name."""
    scaled = {name: signal.value(features) for name, signal in SIGNALS.items()}
    return scaled | {FOREIGN: is_foreign(features.language)}


def is_foreign(language: str) -> float:
    """1.0 for a language that small models know less well than English, else 0.0."""
    return float(language not in ("en", NO_WORDS))
