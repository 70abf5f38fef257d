"""What a reply has cost, and what the target alone would have: the guard that all controllers keep. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...params import FREE_DRAFTERS
from ..stats import RoundRecord
from .costs import Costs

ALLOWED_LOSS = 0.02  # share of the target-alone cost that bets may lose; what they cost beyond it stays within 3 %


@dataclass(slots=True)
class Ledger:
    """Both sums in one unit, seconds or joules."""

    spent: float = 0.0
    alone: float = 0.0

    def book(self, spent: float, alone: float) -> None:
        """Adds a round."""
        self.spent += spent
        self.alone += alone

    @property
    def gain(self) -> float | None:
        """Cost of the target alone over the cost so far, None before anything was booked."""
        return self.alone / self.spent if self.spent > 0 else None

    def credit(self, opening: float) -> float:
        """What the next bet may lose: the allowed share, an opening credit, and what earlier bets have won."""
        return ALLOWED_LOSS * self.alone + opening + (self.alone - self.spent)


def settle(record: RoundRecord, costs: Costs) -> tuple[float, float]:
    """Teaches `costs` a finished round; gives the seconds it took and those the target alone would have taken.

    The next round begins here. A plain round is what the target alone would have done: nothing of it is estimated,
    unless it also made good what a rejected draft had undone.
    """
    costs.observe_verify(record.width, record.n_past, record.verify_s, is_plain=record.is_plain)
    if record.n_drafted and record.source not in FREE_DRAFTERS:
        costs.observe_draft(record.source, record.n_drafted, record.n_past, record.draft_s, n_behind=record.n_behind)
    spent_s = record.draft_s + record.verify_s + record.undo_s
    if costs.n_others:  # clocks saw everybody's tokens; by the curve then
        spent_s = costs.verify_s(record.width, record.n_past)
        spent_s += record.n_drafted * costs.draft_s(record.source, 1, record.n_past)
    alone_s = spent_s if record.is_plain else (record.n_accepted + 1) * costs.verify_s(1, record.n_past)
    costs.begin_round()
    return spent_s, alone_s
