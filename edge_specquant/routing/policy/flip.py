"""The nearest flip: the smallest change of one feature that would put a prompt into another tier.

Takes features, a policy and the score; gives one change, checked by scoring it. "Nearest" is by signal, the common
scale of all features. Knows no siblings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..features.features import Features
from .policy import Policy
from .score import score_of
from .signals import SIGNALS, Signal

_NUDGE = 1e-9  # past the threshold, not onto it
_STEPS = (0, 1, -1)


@dataclass(frozen=True, slots=True)
class Flip:
    """With `field` at `value`, all else equal, the tier would be `tier`; text says so."""

    field: str
    value: float
    tier: str
    text: str


def nearest_flip(features: Features, policy: Policy) -> Flip | None:
    """None when no single feature can move the prompt into another tier."""
    score = score_of(features, policy)
    here = policy.tier_of(score)
    candidates = [
        (distance, flip)
        for threshold in {policy.medium, policy.high}
        for name, weight in policy.weights.items()
        if name in SIGNALS and weight
        for distance, flip in _try(features, policy, here, SIGNALS[name], (threshold - score) / weight)
    ]
    return min(candidates, key=lambda pair: pair[0])[1] if candidates else None


def _try(features: Features, policy: Policy, here: str, signal: Signal, step: float) -> list[tuple[float, Flip]]:
    """The flip that moves one signal by `step`, if the signal's range and a check of the score allow it."""
    now = signal.value(features)
    wanted = now + math.copysign(abs(step) + _NUDGE, step or 1.0)
    if not 0 <= wanted <= 1:
        return []
    for value in _values_near(signal, wanted):
        changed = _with(features, signal.field, value)
        tier = policy.tier_of(score_of(changed, policy))
        if tier != here:
            before = getattr(features, signal.field) or 0
            return [(abs(wanted - now), Flip(signal.field, value, tier, _text(signal, value - before, tier)))]
    return []


def _with(features: Features, field: str, value: float) -> Features:
    change: dict[str, Any] = {field: value}
    return replace(features, **change)


def _values_near(signal: Signal, wanted: float) -> list[float]:
    exact = signal.feature_at(wanted)
    if not signal.whole:
        return [exact]
    return [max(0, round(exact) + step) for step in _STEPS]


def _text(signal: Signal, change: float, tier: str) -> str:
    amount = f"{abs(change):.0f}" if signal.whole else f"{abs(change):.2g}"
    return f"{amount} {'more' if change > 0 else 'fewer'} {signal.unit} would be {tier}"
