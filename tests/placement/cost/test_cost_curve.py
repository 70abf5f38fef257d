"""Curves interpolate, find cheap widths, and survive JSON; a measurement on the real engine has the right shape."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edge_specquant.native.hooks.products import ENGINES_OWN, products_key
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.placement.cost.calibrate import (
    Calibration,
    calibrate,
    calibrate_quickly,
    keep,
    kept_path,
    read_kept,
)
from edge_specquant.placement.cost.cost_curve import CostCurve

FOURS = CostCurve((1, 2, 3, 4, 8), (0, 100), ((1.0, 2.0, 2.5, 1.2, 3.0), (2.0, 3.0, 3.5, 2.2, 4.0)))


def test_widths_and_depths_are_interpolated() -> None:
    assert FOURS.decode_s(1, 0) == 1.0
    assert FOURS.decode_s(6, 0) == pytest.approx(2.1)
    assert FOURS.decode_s(1, 50) == pytest.approx(1.5)
    assert FOURS.decode_s(16, 0) == pytest.approx(6.6)
    assert FOURS.decode_s(1, 200) == pytest.approx(3.0)


def test_a_stalled_measurement_promises_nothing_for_free() -> None:
    """Width 1 was measured while the machine stood still: what lies beyond the last point costs as much as that."""
    stalled = CostCurve((1, 4), (32,), ((3.0, 0.1),))
    assert [stalled.decode_s(width) for width in (1, 4, 5, 49)] == pytest.approx([3.0, 0.1, 0.1, 0.1])
    assert CostCurve((1,), (0, 100), ((1.0,), (0.5,))).decode_s(1, 500) == 0.5


def test_the_cheapest_width_is_at_or_above() -> None:
    assert [FOURS.cheapest_width(w) for w in (1, 2, 3, 4, 5, 8, 20)] == [1, 4, 4, 4, 5, 8, 20]
    strayed = CostCurve((1, 2, 3), (0,), ((1.0, 1.1, 0.96),))
    assert [strayed.cheapest_width(w) for w in (1, 2)] == [1, 3]


def test_json_round_trip_and_rubbish() -> None:
    assert CostCurve.from_dict(json.loads(json.dumps(FOURS.as_dict()))) == FOURS
    with pytest.raises((KeyError, TypeError, ValueError)):
        CostCurve.from_dict({"widths": [1]})


def test_real_measurements_are_positive_kept_and_leave_the_context_empty(tiny_gguf: Path, tmp_path: Path) -> None:
    tiny_gguf = shutil.copy(tiny_gguf, tmp_path / "unmeasured.gguf")
    with (
        NativeModel(tiny_gguf, use_extra_bufts=True) as model,
        model.context(ContextParams(n_ctx=256, n_batch=64, max_rows=49, n_threads=1)) as context,
    ):
        full, quick = calibrate(context, n_passes=2), calibrate_quickly(context, 0.0)
        assert context.used() == 0
    for made in (full, quick):
        assert all(s > 0 for row in made.as_target.seconds for s in row)
    assert {1, 4} <= set(quick.as_target.widths) and quick.is_quick and not full.is_quick
    assert set(range(1, 17)) <= set(full.as_target.widths)
    path = kept_path(tiny_gguf, 1, 0)
    assert read_kept(path) is None
    keep(path, full)
    assert read_kept(path) == full
    path.write_text("{}", encoding="utf-8")
    assert read_kept(path) is None
    assert kept_path(tiny_gguf, 2, 0) != path
    if products_key() != ENGINES_OWN:
        assert kept_path(tiny_gguf, 1, 0, use_kernel=False) != path
    assert isinstance(quick, Calibration)
