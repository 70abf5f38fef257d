"""How far to draft: controllers behind one protocol. Pure: they see offers, signals, costs and outcomes, never a token.

`Fixed` always drafts n; `Entropy` stops where the draft is unsure. `goodput.py` (the default) and `speckv.py` decide
from cost and confidence. One controller a request: nothing leaks into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..signals import Choice, Offer, Signals
from ..stats import RoundRecord


class Controller(Protocol):
    """Decides per round and per token."""

    def limit(self) -> int:
        """Most draft tokens for the round about to start; 0 is plain decoding."""
        ...

    def choose(self, offers: Sequence[Offer], limit: int) -> Choice | None:
        """Which drafter's offer to take; None is plain decoding."""
        ...

    def should_continue(self, signals: Signals) -> bool:
        """Whether another token is wanted after this one."""
        ...

    def observe(self, record: RoundRecord) -> None:
        """Learns from a finished round."""
        ...

    @property
    def reason(self) -> str:
        """Why n_draft is what it is, in a few words."""
        ...

    @property
    def speedup_estimate(self) -> float | None:
        """Time the target alone would have taken over the time taken; None where costs are not watched."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always n draft tokens, from the first drafter that has any."""

    n: int
    speedup_estimate: float | None = None

    def limit(self) -> int:
        """n."""
        return self.n

    def choose(self, offers: Sequence[Offer], limit: int) -> Choice | None:
        """The first offer."""
        return Choice(0, min(self.n, limit, offers[0].n_max)) if offers else None

    def should_continue(self, signals: Signals) -> bool:
        """Always: the limit ends the draft."""
        del signals
        return True

    def observe(self, record: RoundRecord) -> None:
        """Nothing to learn."""

    @property
    def reason(self) -> str:
        """The caller's wish."""
        return f"fixed at {self.n}"


class Entropy:
    """Stops once the draft's entropy passes a threshold learnt online: lowered by rejections, raised by full acceptance
    (after AdaEDL and kin). At most `widest` tokens."""

    _STEP = 0.05
    _START_NATS = 1.0

    def __init__(self, widest: int) -> None:
        self._widest = widest
        self._threshold = self._START_NATS
        self.speedup_estimate: float | None = None

    @property
    def reason(self) -> str:
        """The threshold reached."""
        return f"stops above {self._threshold:.2f} nats of draft entropy"

    def limit(self) -> int:
        """The widest draft."""
        return self._widest

    def choose(self, offers: Sequence[Offer], limit: int) -> Choice | None:
        """The first offer."""
        return Choice(0, min(limit, offers[0].n_max)) if offers else None

    def should_continue(self, signals: Signals) -> bool:
        """While the draft is sure enough; a lookup has no entropy and goes on."""
        return signals.entropy is None or signals.entropy <= self._threshold

    def observe(self, record: RoundRecord) -> None:
        """A rejection below the threshold lowers it; full acceptance raises it."""
        if not record.n_drafted or record.signals[0].entropy is None:
            return
        if record.n_accepted == record.n_drafted:
            self._threshold += self._STEP
        else:
            self._threshold = max(self._STEP, self._threshold - self._STEP)
