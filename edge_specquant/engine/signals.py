"""What a drafter knows about its own guesses; what controllers decide by. Plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signals:
    """One draft token: its place in the draft, its probability under the draft, the draft's entropy in nats.

    source names the drafter; match_length is how many tokens a lookup matched. None is not measured.
    """

    position: int
    source: str
    confidence: float | None = None
    entropy: float | None = None
    match_length: int | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter could do now, before it spends anything.

    n_max: most tokens it can propose. n_behind: tokens of history it must decode before the first one (0: costs
    nothing). match_length as in Signals.
    """

    source: str
    n_max: int
    n_behind: int = 0
    match_length: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which offer to take, and at most how many tokens of it."""

    index: int
    n: int
