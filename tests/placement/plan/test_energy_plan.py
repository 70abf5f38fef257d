"""Plans that save joules, and the measurement of watts behind them."""

from __future__ import annotations

import numpy as np
import pytest

from edge_specquant.errors import PlanError
from edge_specquant.native.fake import FakeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.placement.cost.calibrate import Calibration
from edge_specquant.placement.cost.cost_curve import CostCurve
from edge_specquant.placement.cost.kept_curves import read_all_kept
from edge_specquant.placement.cost.measure_watts import WIDTHS, measure_watts
from edge_specquant.placement.cost.sibling import Sibling
from edge_specquant.placement.cost.watt_curve import Watts
from edge_specquant.placement.plan.plan import make_plan
from edge_specquant.placement.plan.plan_types import Wish

FAMILY = "Qwen2.5-3B"


@pytest.fixture
def siblings(family_cards):
    return [Sibling(name, card) for name, card in family_cards(FAMILY).items()]


def flat(watts: float) -> Watts:
    return Watts((1,), (watts,), watts, "test")


def test_without_watts_energy_is_not_planned(machine_name, profile_of, siblings):
    with pytest.raises(PlanError, match="energy"):
        make_plan(siblings, profile_of(machine_name), Wish("energy"))


def test_equal_watts_plan_as_speed_does(machine_name, profile_of, siblings):
    profile = profile_of(machine_name)
    watts = {f"{s.name}{place}": flat(8.0) for s in siblings for place in ("", "@gpu")}
    try:
        fast = make_plan(siblings, profile, Wish("speed", target="q4", draft="none"))
    except PlanError:
        pytest.skip("too small a machine")
    if fast.target.n_gpu_layers > 0:
        pytest.skip("a split has no watts of its own")
    thrifty = make_plan(siblings, profile, Wish("energy", target="q4", draft="none"), watts=watts)
    assert thrifty.target == fast.target
    assert thrifty.predicted_joules_per_token == pytest.approx(8.0 / fast.predicted_tokens_per_s)


def test_a_thirsty_target_gives_way(kit, profile_of, siblings):
    fits_all = [name for name in kit.machines if not profile_of(name).gpus]
    profile = profile_of(fits_all[-1])
    even = {s.name: flat(8.0) for s in siblings}
    for thirsty in ("q4", "q8"):
        watts = even | {thirsty: flat(8000.0)}
        plan = make_plan(siblings, profile, Wish("energy"), watts=watts)
        assert plan.target.variant != thirsty and (plan.draft is None or plan.draft.variant != thirsty)
        assert "joules" in " ".join(decision.reason for decision in plan.reasons)
        assert "J a token" in " ".join(decision.choice for decision in plan.reasons)


class SteppedClock:
    """Every look at it takes a tenth of a second."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


class KnownMeter:
    """Seven watts, always."""

    source = "seven"

    def joules(self, start_s: float, end_s: float) -> float | None:
        return 7.0 * (end_s - start_s)


class SilentMeter:
    source = "silent"

    def joules(self, start_s: float, end_s: float) -> float | None:
        return None


def test_measured_watts_are_the_meters():
    context = FakeModel(lambda _: np.zeros(16)).context(ContextParams(n_ctx=128, max_rows=32))
    found = measure_watts(context, KnownMeter(), hold_s=1.0, clock=SteppedClock())
    assert found is not None and found.widths == WIDTHS and found.source == "seven"
    assert found.as_target == pytest.approx((7.0,) * len(WIDTHS)) and found.as_draft == pytest.approx(7.0)
    assert measure_watts(context, SilentMeter(), hold_s=1.0, clock=SteppedClock()) is None


def test_watts_are_kept_with_the_curves():
    curve = CostCurve((1, 2), (0,), ((0.1, 0.2),))
    made = Calibration(curve, curve, False, flat(3.0))
    assert Calibration.from_dict(made.as_dict()) == made
    old = made.as_dict()
    del old["watts"]  # as written before there were watts
    assert Calibration.from_dict(old).watts is None


def test_nothing_kept_is_nothing_known(siblings, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))
    found = read_all_kept(siblings, 3)
    assert found.curves == {} and found.watts == {}
