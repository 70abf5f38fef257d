"""The default controller on scripted machines: it finds what pays, leaves what does not, and never loses 3 %."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edge_specquant.engine.control.cascade import best_gain, riders
from edge_specquant.engine.control.costs import Costs
from edge_specquant.engine.control.goodput import Goodput
from edge_specquant.engine.signals import Offer, Signals
from edge_specquant.engine.stats import RoundRecord
from edge_specquant.placement.cost.cost_curve import CostCurve

WIDTHS = tuple(range(1, 49))


def curve(cost: Callable[[int], float]) -> CostCurve:
    return CostCurve(WIDTHS, (0,), (tuple(cost(w) for w in WIDTHS),))


MEMORY_BOUND = curve(lambda w: 1.0 + 0.04 * (w - 1))  # a wide batch is nearly free
LINEAR = curve(lambda w: 1.0 * w)  # speculation can never pay
ROWS_OF_FOUR = curve(lambda w: 1.1 if w == 4 else 1.0 if w == 1 else 1.0 + 0.35 * w)


class Machine:
    """Plays rounds: a draft model with confidence, or a lookup, whose tokens are accepted with probability p."""

    def __init__(self, target: CostCurve, draft_s: float | None, seed: int = 0, drift: float = 1.0) -> None:
        self.target, self.draft_s, self.drift = target, draft_s, drift
        self.rng = np.random.default_rng(seed)
        drafts = {} if draft_s is None else {"q4": curve(lambda w: draft_s * w)}
        self.costs = Costs(target, drafts)
        self.seconds = 0.0
        self.lengths: list[int] = []

    def run(self, controller: Goodput, n_tokens: int, p: Callable[[int], float]) -> float:
        """Seconds for n tokens; p(tokens so far) is the acceptance."""
        done, begun = 0, self.seconds
        while done < n_tokens:
            done += self.round(controller, done, p(done), n_tokens - done - 1)
        return self.seconds - begun

    def round(self, controller: Goodput, done: int, p: float, room: int) -> int:
        lookup = self.draft_s is None
        offers = [Offer("lookup", 64, match_length=6) if lookup else Offer("q4", 64, n_behind=1)]
        choice = controller.choose(offers, room) if room > 0 else None
        signals: list[Signals] = []
        while choice and len(signals) < choice.n:
            confidence = float(np.clip(self.rng.normal(p, 0.05), 0, 1))
            made = Signals(
                len(signals), "lookup" if lookup else "q4", None if lookup else confidence, None, 6 if lookup else None
            )
            signals.append(made)
            if not controller.should_continue(made):
                break
        n = len(signals)
        accepted = 0
        while accepted < n and self.rng.random() < p:
            accepted += 1
        width = self.costs.padded(1 + n)
        draft_s = n * (self.draft_s or 0.0) * self.drift
        verify_s = self.target.decode_s(width) * self.drift
        controller.observe(
            RoundRecord(
                n, accepted, draft_s, verify_s, width, 100 + done, signals[0].source if n else "none", tuple(signals)
            )
        )
        self.seconds += draft_s + verify_s
        self.lengths.append(n)
        return 1 + accepted


@pytest.mark.parametrize("p", [0.0, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("target", [LINEAR, MEMORY_BOUND, ROWS_OF_FOUR], ids=["linear", "memory", "fours"])
@pytest.mark.parametrize("draft_s", [None, 0.02, 0.5, 1.0], ids=["lookup", "cheap", "half", "as dear"])
def test_never_loses_more_than_three_percent(target: CostCurve, draft_s: float | None, p: float) -> None:
    for seed in range(3):
        machine = Machine(target, draft_s, seed)
        seconds = machine.run(Goodput(machine.costs, 48), 200, lambda _: p)
        assert seconds <= 200 * 1.03 + 1.05, (seconds, machine.lengths)


def test_where_nothing_can_pay_nothing_is_drafted() -> None:
    machine = Machine(LINEAR, 0.5)
    controller = Goodput(machine.costs, 48)
    assert machine.run(controller, 100, lambda _: 1.0) == 100
    assert set(machine.lengths) == {0}
    assert controller.reason == "no draft length pays here"


def test_a_perfect_cheap_draft_is_used_to_the_full() -> None:
    machine = Machine(MEMORY_BOUND, 0.05)
    controller = Goodput(machine.costs, 48)
    seconds = machine.run(controller, 400, lambda _: 0.98)
    assert 400 / seconds > 3
    assert controller.speedup_estimate == pytest.approx(400 / seconds, rel=0.05)


def test_a_busy_moment_does_not_end_drafting() -> None:
    """The machine stands still for a hundred forwards while the draft, then while a verification runs."""
    machine = Machine(MEMORY_BOUND, 0.1)
    controller = Goodput(machine.costs, 48)
    machine.run(controller, 60, lambda _: 0.95)
    for draft_s, verify_s in ((100.0, 1.0), (0.4, 100.0)):
        signals = tuple(Signals(i, "q4", 0.95) for i in range(4))
        controller.observe(RoundRecord(4, 4, draft_s, verify_s, 5, 100, "q4", signals))
        machine.lengths.clear()
        fresh = Goodput(machine.costs, 48)  # the next reply: the ledger of this one has to make good for the loss
        machine.run(fresh, 200, lambda _: 0.95)
        assert np.mean([n > 0 for n in machine.lengths[10:]]) > 0.9, machine.lengths


def test_catching_up_says_nothing_of_a_step() -> None:
    """A draft that has to read the prompt first, or copies the target's cells, is not a slow draft."""
    costs = Machine(MEMORY_BOUND, 0.1).costs
    before = costs.draft_s("q4", 1, 0)
    for n_behind in (500, None):
        costs.observe_draft("q4", 2, 0, 30.0, n_behind=n_behind)
    assert costs.draft_s("q4", 1, 0) == before
    costs.observe_draft("q4", 3, 0, 0.6, n_behind=4)  # 0.1 for each token read and two more steps
    assert costs.draft_s("q4", 1, 0) == pytest.approx(before)


def test_what_once_seemed_dear_is_tried_again() -> None:
    machine = Machine(MEMORY_BOUND, 0.1)
    for _ in range(40):
        machine.costs.observe_draft("q4", 1, 0, 2.0)
    assert machine.costs.draft_s("q4", 1, 0) > 1.5
    controller = Goodput(machine.costs, 48)
    machine.run(controller, 100, lambda _: 1.0)
    assert not any(machine.lengths[:50])
    machine.run(controller, 500, lambda _: 1.0)
    assert np.mean([n > 0 for n in machine.lengths[-10:]]) > 0.9


def test_lengths_prefer_the_cheap_width() -> None:
    machine = Machine(ROWS_OF_FOUR, None)
    machine.run(Goodput(machine.costs, 48), 400, lambda _: 0.75)
    drafted = [n for n in machine.lengths if n]
    assert np.mean([n == 3 for n in drafted]) > 0.6


def test_it_recovers_after_a_long_bad_stretch_and_starts_fresh() -> None:
    """Case A17: acceptance 0 % for 200 tokens, then 100 %."""
    machine = Machine(MEMORY_BOUND, 0.05)
    controller = Goodput(machine.costs, 48)
    machine.run(controller, 200, lambda _: 0.0)
    assert np.mean(machine.lengths[-50:]) < 1.5
    machine.lengths.clear()
    seconds = machine.run(controller, 300, lambda _: 1.0)
    assert 300 / seconds > 2
    fresh = Machine(MEMORY_BOUND, 0.05)
    fresh.run(Goodput(fresh.costs, 48), 20, lambda _: 1.0)
    assert fresh.lengths[:3] == [0, 0, 0] and fresh.lengths[3] > 0  # plain decoding is timed first


def test_a_machine_slower_than_calibrated_changes_nothing_but_the_clock() -> None:
    calm, busy = Machine(MEMORY_BOUND, 0.1), Machine(MEMORY_BOUND, 0.1, drift=3.0)
    fast = calm.run(Goodput(calm.costs, 48), 300, lambda _: 0.9)
    slow = busy.run(Goodput(busy.costs, 48), 300, lambda _: 0.9)
    assert slow == pytest.approx(3 * fast, rel=0.1)


def test_without_a_calibration_it_learns_the_costs() -> None:
    machine = Machine(LINEAR, None)
    machine.costs = Costs()
    seconds = machine.run(Goodput(machine.costs, 48), 300, lambda _: 0.9)
    assert seconds < 300 * 1.1
    assert np.mean([n > 0 for n in machine.lengths[-50:]]) < 0.2


def test_riders_only_where_a_wide_draft_is_cheap() -> None:
    assert riders(ROWS_OF_FOUR, match_length=8) == 3
    assert riders(LINEAR, match_length=32) == 0


def test_best_gain_says_whether_a_sibling_is_worth_loading() -> None:
    assert best_gain(Costs(MEMORY_BOUND, {"q4": curve(lambda w: 0.2 * w)}), "q4") > 2
    assert best_gain(Costs(LINEAR, {"q4": curve(lambda w: 0.5 * w)}), "q4") == 1.0
