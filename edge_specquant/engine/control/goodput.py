"""The default controller: draft while it raises expected tokens per expected second, and not at all where nothing does.

A round with n draft tokens, of which token i is accepted with probability p_i if those before it were, yields
1 + sum_k prod_{i<=k} p_i tokens and costs the draft plus a target forward of the padded width. Costs are measured
(`costs.py`), probabilities learnt (`acceptance.py`). A ledger keeps the whole reply within 3 % of the target alone:
a bet whose worst case, weighed by its likelihood, is not covered is not made. With a price in joules (`prices.py`) the
same goes for energy. Pure. In the spirit of SpecDec++, TETRIS.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..signals import Choice, Offer, Signals
from ..stats import RoundRecord
from .acceptance import Acceptance
from .costs import Costs
from .ledger import Ledger, settle
from .prices import Price, RoundPrice, Seconds

_OPENING_CREDIT = 0.7  # in single-token forwards of the target: what the first bet may cost
_LARGEST_BET = 1.0  # the same: how far a likely success may go beyond the credit
_MIN_GAIN = 1.02  # a look-up must promise this much over plain decoding
_MIN_GAIN_OF_A_MODEL = 1.06  # a sibling more: its own forwards are at stake, and costs are known to a few per cent
_LOOK_AHEAD = 8
_LONGEST_OPEN_END = 12
_NEGLIGIBLE = 0.02  # tokens so unlikely to be reached are not looked at


class Goodput:
    """One per request. price: what is to be saved, seconds unless told otherwise."""

    def __init__(self, costs: Costs, widest: int, price: Price | None = None) -> None:
        self._costs = costs
        self._widest = widest
        self._price = price or Seconds()
        self._round = RoundPrice(costs, self._price)
        self._acceptance = Acceptance()
        self._time = Ledger()
        self._ledger = Ledger()
        self._survival = 1.0
        self._expected = 1.0
        self._draft_spent = 0.0
        self._why = "nothing drafted yet"

    @property
    def reason(self) -> str:
        """Why n_draft is what it is."""
        return self._why

    @property
    def speedup_estimate(self) -> float | None:
        """Time the target alone would have taken over the time taken, decoding only."""
        return self._time.gain

    def limit(self) -> int:
        """Any length: `choose` and `should_continue` decide."""
        return self._widest

    def choose(self, offers: Sequence[Offer], limit: int) -> Choice | None:
        """The offer and length with the most expected tokens per second; None is plain decoding."""
        self._survival, self._expected, self._draft_spent = 1.0, 1.0, 0.0
        if not self._costs.knows_alone:
            self._why = "plain decoding is being timed first"
            return None
        one = self._round.plain()
        alone = 1.0 / one
        best: Choice | None = None
        best_rate = 0.0
        for index, offer in enumerate(offers):
            p = self._acceptance.at_start(offer.source, offer.match_length)
            if (1 / (1 - p) if p < 1 else limit) * one < self._round.verify(1, p) + self._round.draft(offer, 1):
                continue  # not even an endless draft of such tokens would pay for the first wide forward
            expected, reach = 1.0, 1.0
            least = alone * (_MIN_GAIN_OF_A_MODEL if offer.match_length is None else _MIN_GAIN)
            for n in range(1, min(limit, offer.n_max) + 1):
                reach *= p
                expected += reach
                rate = expected / self._round.whole(offer, n, reach)
                if rate > max(best_rate, least) and self._covered(offer, n, 1 - p):
                    best, best_rate = Choice(index, n), rate
                if reach < _NEGLIGIBLE:
                    break
        self._explain(offers, best, best_rate / alone)
        if best is not None and offers[best.index].match_length is None:
            longest = max(best.n, _LONGEST_OPEN_END)  # `should_continue` ends it before
            return Choice(best.index, min(limit, offers[best.index].n_max, longest))
        return best

    def should_continue(self, signals: Signals) -> bool:
        """Whether some longer draft is expected to pay for itself at the rate reached so far."""
        if signals.match_length is not None:
            return True
        self._survival *= self._acceptance.of(signals)
        self._expected += self._survival
        drafted = signals.position + 1
        step = self._round.step(signals.source, 1)
        self._draft_spent += step
        so_far = self._round.verify(drafted, self._survival)
        rate = max(self._expected / (self._draft_spent + so_far), 1.0 / self._round.plain())
        ahead = self._acceptance.at_start(signals.source, None)
        gained, reach = 0.0, self._survival
        for more in range(1, _LOOK_AHEAD + 1):
            reach *= ahead
            gained += reach
            cost = more * step + self._round.verify(drafted + more, reach) - so_far
            if gained > rate * cost:
                return True
        return False

    def observe(self, record: RoundRecord) -> None:
        """Learns costs and acceptance; books the round in the ledger."""
        spent_s, alone_s = settle(record, self._costs)
        self._time.book(spent_s, alone_s)
        spent = self._price.draft(record.source, record.draft_s) + self._price.verify(record.width, record.verify_s)
        spent += self._price.verify(1, record.undo_s)
        self._ledger.book(spent, spent if record.is_plain else self._price.verify(1, alone_s))
        self._round.move_to(record)
        if record.n_drafted:
            self._acceptance.learn(record.signals, record.n_accepted)
        else:
            self._acceptance.age()

    def _covered(self, offer: Offer, n: int, p_nothing: float) -> bool:
        """Whether the ledger bears the round if nothing is accepted: its worst case, weighed by how likely that is."""
        one = self._round.plain()
        credit = self._ledger.credit(_OPENING_CREDIT * one)
        worst = self._round.whole(offer, n) - one
        return worst <= credit or (worst * p_nothing <= credit / 2 and worst <= credit + _LARGEST_BET * one)

    def _explain(self, offers: Sequence[Offer], best: Choice | None, gain: float) -> None:
        if best is not None:
            self._why = f"{offers[best.index].source}: {best.n} ahead promised {gain:.2f}x{self._price.suffix}"
        elif offers:
            self._why = "no draft length pays here"
        else:
            self._why = "nothing to copy and no draft"
