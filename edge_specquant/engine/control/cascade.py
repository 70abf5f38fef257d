"""When lookup guesses should ride along in a draft's own forward, and whether a draft can pay at all. Pure."""

from __future__ import annotations

from .acceptance import Acceptance
from .costs import Costs, Curve

_RIDERS = (1, 2, 3, 5, 7)
_OPTIMISTIC = 0.96  # acceptance that a 4-bit sibling reaches on easy text
_LONGEST = 12
_MIN_GAIN = 1.03


def riders(curve: Curve, match_length: int) -> int:
    """How many guesses of a match of this length make the draft's forward yield most tokens per second; 0 is none."""
    p = Acceptance().at_start("ride", match_length)
    best, best_rate = 0, 1 / curve.decode_s(1)
    for n in _RIDERS:
        rate = (1 + sum(p**k for k in range(1, n + 1))) / curve.decode_s(1 + n)
        if rate > best_rate * _MIN_GAIN:
            best, best_rate = n, rate
    return best


def best_gain(costs: Costs, source: str, n_past: int = 0) -> float:
    """The most a sibling could gain over the target alone if nearly all it drafts were accepted."""
    alone = costs.verify_s(1, n_past)
    step = costs.draft_s(source, 1, n_past)
    best = 1.0
    for n in range(1, _LONGEST + 1):
        expected = 1 + sum(_OPTIMISTIC**k for k in range(1, n + 1))
        best = max(best, expected * alone / (n * step + costs.verify_s(costs.padded(1 + n), n_past)))
    return best
