"""A controller that saves joules: equal watts change nothing, a thrifty draft is used, a wasteful width is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from edge_specquant.engine.control.costs import Costs
from edge_specquant.engine.control.goodput import Goodput
from edge_specquant.engine.control.prices import Joules, Price, Seconds
from edge_specquant.engine.signals import Offer, Signals
from edge_specquant.engine.stats import RoundRecord
from edge_specquant.placement.cost.cost_curve import CostCurve
from edge_specquant.placement.cost.watt_curve import Watts

WIDTHS = tuple(range(1, 49))
TARGET = CostCurve(WIDTHS, (0,), (tuple(1.0 + 0.1 * (w - 1) for w in WIDTHS),))
DRAFT = CostCurve(WIDTHS, (0,), (tuple(0.8 * w for w in WIDTHS),))  # in seconds hardly cheaper than the target


@dataclass(frozen=True)
class Power:
    """Watts that do not depend on the width unless wide says so."""

    as_draft: float
    one: float = 10.0
    wide: float = 10.0

    def at(self, width: int) -> float:
        return self.one if width == 1 else self.wide


def rounds(price: Price | None, n_rounds: int = 60) -> list[int]:
    """Draft lengths of a reply in which every draft token is accepted."""
    costs = Costs(TARGET, {"q4": DRAFT})
    controller = Goodput(costs, 48, price)
    lengths = []
    done = 0
    for _ in range(n_rounds):
        choice = controller.choose([Offer("q4", 8, n_behind=1)], 8)
        signals: list[Signals] = []
        while choice and len(signals) < choice.n:
            signals.append(Signals(len(signals), "q4", 0.98, None, None))
            if not controller.should_continue(signals[-1]):
                break
        n = len(signals)
        width = costs.padded(1 + n)
        record = RoundRecord(n, n, 0.8 * n, TARGET.decode_s(width), width, done, "q4" if n else "none", tuple(signals))
        controller.observe(record)
        done += 1 + n
        lengths.append(n)
    assert controller.speedup_estimate is not None
    return lengths


@pytest.mark.parametrize("watts", [0.5, 7.0, 300.0])
def test_equal_watts_choose_as_seconds_do(watts: float) -> None:
    power = Power(watts, watts, watts)
    assert rounds(Joules(power, {"q4": power})) == rounds(None) == rounds(Seconds())


def test_a_draft_that_draws_little_is_used_where_seconds_would_not() -> None:
    thrifty = Joules(Power(10.0), {"q4": Power(1.0)})
    assert sum(rounds(None)) == 0  # 0.8 s a draft token never pays in time
    assert sum(rounds(thrifty)) > 60


def test_widths_that_draw_much_are_avoided() -> None:
    cheap = Joules(Power(10.0), {"q4": Power(1.0)})
    dear = Joules(Power(10.0, wide=100.0), {"q4": Power(1.0)})
    assert sum(rounds(dear)) == 0 < sum(rounds(cheap))


def test_look_ups_cost_what_the_target_draws() -> None:
    price = Joules(Power(3.0, 20.0, 30.0), {})
    assert price.draft("lookup", 0.0) == 0.0
    assert price.draft("lookup", 2.0) == 40.0
    assert price.verify(1, 1.0) == 20.0 and price.verify(4, 1.0) == 30.0


def test_watts_between_and_beyond_their_points() -> None:
    watts = Watts((1, 4, 8), (10.0, 16.0, 20.0), 5.0, "a meter")
    assert [watts.at(w) for w in (1, 2, 4, 6, 8, 48)] == [10.0, 12.0, 16.0, 18.0, 20.0, 20.0]
    assert Watts.from_dict(watts.as_dict()) == watts
