"""Costs among other replies: what one reply's tokens add to a batch that runs anyway."""

from __future__ import annotations

from edge_specquant.engine.control.costs import Costs
from edge_specquant.engine.control.goodput import Goodput
from edge_specquant.engine.control.ledger import settle
from edge_specquant.engine.signals import Offer
from edge_specquant.engine.stats import RoundRecord


class Line:
    """A forward of `first` seconds, each further token `more`."""

    def __init__(self, first: float, more: float) -> None:
        self.first, self.more = first, more

    def decode_s(self, width: int, n_past: int = 0) -> float:
        del n_past
        return self.first + self.more * (width - 1)

    def cheapest_width(self, width: int) -> int:
        return width


def costs(others: int) -> Costs:
    made = Costs(Line(30.0, 5.0), {"q4": Line(10.0, 2.5)})
    for _ in range(3):
        made.observe_verify(1, 0, 30.0, is_plain=True)
    made.company = lambda: others
    made.begin_round()
    return made


def test_the_parts_of_all_make_the_batch() -> None:
    for others in range(8):
        whole = Line(30.0, 5.0).decode_s(others + 1)
        assert abs((others + 1) * costs(others).verify_s(1, 0) - whole) < 1e-9


def test_further_tokens_cost_what_they_add() -> None:
    crowd = costs(7)
    assert abs(crowd.verify_s(4, 0) - crowd.verify_s(1, 0) - 15.0) < 1e-9


def test_a_draft_that_pays_alone_does_not_pay_in_a_crowd() -> None:
    offer = Offer(source="q4", n_max=8, n_behind=1, match_length=None)
    assert Goodput(costs(0), 16).choose([offer], 8) is not None
    assert Goodput(costs(7), 16).choose([offer], 8) is None


def test_the_clock_of_a_mixed_batch_teaches_nothing() -> None:
    crowd = costs(3)
    before = crowd.verify_s(1, 0)
    record = RoundRecord(
        width=1, n_past=0, n_drafted=0, n_accepted=0, source="", draft_s=0.0, verify_s=99.0, signals=()
    )
    spent, alone = settle(record, crowd)
    assert spent == alone == before == crowd.verify_s(1, 0)
