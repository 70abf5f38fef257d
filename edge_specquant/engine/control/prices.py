"""What a controller wants to spend least of: seconds, or joules (seconds times the watts a forward draws). Pure.

`RoundPrice` sums it for a round: what a draft and its verification would cost where the history ends now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..signals import Offer
from ..stats import RoundRecord
from .costs import Costs


class Power(Protocol):
    """Watts of one sibling (placement/cost/watt_curve.py)."""

    @property
    def as_draft(self) -> float:
        """Watts while it drafts."""
        ...

    def at(self, width: int) -> float:
        """Watts during a forward of `width` tokens."""
        ...


class Price(Protocol):
    """Turns seconds into what counts."""

    suffix: str
    """What follows a gain in a sentence: nothing, or ' per joule'."""

    def verify(self, width: int, seconds: float) -> float:
        """Of a target forward."""
        ...

    def draft(self, source: str, seconds: float) -> float:
        """Of drafting."""
        ...


class Seconds:
    """Time itself."""

    suffix = ""

    def verify(self, width: int, seconds: float) -> float:
        """The seconds."""
        del width
        return seconds

    def draft(self, source: str, seconds: float) -> float:
        """The seconds."""
        del source
        return seconds


class Joules:
    """Energy. Power was measured once, time is watched: a forward that runs longer costs more joules, too."""

    suffix = " per joule"

    def __init__(self, target: Power, drafts: Mapping[str, Power]) -> None:
        self._target = target
        self._drafts = dict(drafts)

    def verify(self, width: int, seconds: float) -> float:
        """At the target's watts for this width."""
        return seconds * self._target.at(width)

    def draft(self, source: str, seconds: float) -> float:
        """At the draft's watts; whoever has none of its own (look-ups) is priced as the target at width 1."""
        power = self._drafts.get(source)
        return seconds * (self._target.at(1) if power is None else power.as_draft)


class RoundPrice:
    """Prices of forwards behind the tokens that the cache holds; `move_to` tells of each round."""

    def __init__(self, costs: Costs, price: Price) -> None:
        self._costs = costs
        self._price = price
        self._n_past = 0

    def move_to(self, record: RoundRecord) -> None:
        """The history after this round."""
        self._n_past = record.n_past + record.n_accepted + 1

    def plain(self) -> float:
        """One token of the target alone."""
        return self._price.verify(1, self._costs.verify_s(1, self._n_past))

    def verify(self, n_draft: int, p_whole: float = 0.0) -> float:
        """The target's forward over the last token and n_draft more, padded as it will be, without what a plain round
        would have to make good as well. With it, where the memory needs that, what keeping a state costs, and what
        going back to it costs this round and the next, unless all is accepted: with probability p_whole.
        """
        owed = self._costs.n_pending
        price = self._forward(owed + n_draft) - (self._forward(owed) - self.plain() if owed > 1 else 0.0)
        undo = self._costs.undo_s(n_draft)
        if undo is None:
            return price
        again = self._forward(owed + 1 + n_draft // 2) - self.plain()
        return price + self._price.verify(1, undo[0] + (1 - p_whole) * undo[1]) + (1 - p_whole) * again

    def step(self, source: str, width: int) -> float:
        """One forward of a draft."""
        return self._price.draft(source, self._costs.draft_s(source, width, self._n_past))

    def draft(self, offer: Offer, n: int) -> float:
        """n tokens of an offer, what it has to read first included."""
        step = self.step(offer.source, 1)
        catch_up = self.step(offer.source, offer.n_behind) if offer.n_behind > 1 else step
        return catch_up + (n - 1) * step

    def whole(self, offer: Offer, n: int, p_whole: float = 0.0) -> float:
        """Draft and verification."""
        return self.draft(offer, n) + self.verify(n, p_whole)

    def _forward(self, width: int) -> float:
        width = self._costs.padded(width)
        return self._price.verify(width, self._costs.verify_s(width, self._n_past))
