"""Laws of the statistics on synthetic samples: intervals cover the truth as often as they say; no ghosts are seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.bench.measure.statistics import (
    difference_interval,
    mean_interval,
    paired_mean_difference,
    proportion,
    ratio_interval,
    spread,
)

N_RESAMPLES = 400
positive = st.floats(0.01, 100.0)


@settings(deadline=None)
@given(st.lists(positive, min_size=1, max_size=20))
def test_spread_is_ordered_and_inside_the_data(values: list[float]) -> None:
    found = spread(values)
    assert found is not None and found.n == len(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_nothing_measured_is_unknown() -> None:
    assert spread([]) is None
    assert ratio_interval([]) is None and ratio_interval([[], []]) is None
    assert difference_interval([[]], [[]]) is None
    assert mean_interval([]) is None and proportion(0, 0) is None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(positive, min_size=1, max_size=4), min_size=1, max_size=5), positive)
def test_ratios_scale_and_invert(cases: list[list[float]], factor: float) -> None:
    found = ratio_interval(cases, 50)
    scaled = ratio_interval([[factor * value for value in case] for case in cases], 50)
    inverse = ratio_interval([[1 / value for value in case] for case in cases], 50)
    assert found is not None and scaled is not None and inverse is not None
    assert scaled.value == pytest.approx(factor * found.value, rel=1e-9)
    assert inverse.value == pytest.approx(1 / found.value, rel=1e-9)


def test_one_ratio_alone_has_no_interval() -> None:
    found = ratio_interval([[1.3]])
    assert found is not None and found.value == pytest.approx(1.3)
    assert found.low is None and found.excludes(1.0) is None


def test_ratio_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        case_effects = rng.normal(math.log(1.25), 0.05, 8)
        cases = [list(np.exp(rng.normal(effect, 0.05, 4))) for effect in case_effects]
        found = ratio_interval(cases, N_RESAMPLES)
        assert found is not None and found.low is not None and found.high is not None
        covered += found.low <= 1.25 <= found.high
    assert covered >= 170  # nominally 190 of 200; a percentile bootstrap of eight cases is a little too sure


def test_a_change_is_found_and_no_change_is_not() -> None:
    rng = np.random.default_rng(2)
    false_alarms = found = 0
    for _ in range(100):
        levels = rng.uniform(10, 40, 6)
        before = [list(level * np.exp(rng.normal(0, 0.02, 5))) for level in levels]
        same = [list(level * np.exp(rng.normal(0, 0.02, 5))) for level in levels]
        faster = [list(1.1 * level * np.exp(rng.normal(0, 0.02, 5))) for level in levels]
        for after, is_real in ((same, False), (faster, True)):
            result = difference_interval(before, after, N_RESAMPLES)
            assert result is not None and result[1] is not None
            significant = result[1] < 0.05
            found += significant and is_real
            false_alarms += significant and not is_real
    assert found == 100
    assert false_alarms <= 20


def test_without_repeats_a_difference_has_no_p_value() -> None:
    result = difference_interval([[10.0], [20.0]], [[11.0], [22.0]])
    assert result is not None
    interval, p = result
    assert interval.value == pytest.approx(1.1) and interval.low is None and p is None


def test_paired_differences_see_through_a_wide_spread() -> None:
    rng = np.random.default_rng(3)
    before = list(rng.normal(50, 20, 40))
    after = [value + 1 + rng.normal(0, 0.5) for value in before]
    result = paired_mean_difference(before, after)
    assert result is not None and result[1] is not None
    assert result[0].value == pytest.approx(1, abs=0.3) and result[1] < 0.001


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"), [(0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0), (8, 20, 0.2188, 0.6134)]
)
def test_wilson_intervals(hits: int, n: int, low: float, high: float) -> None:
    found = proportion(hits, n)
    assert found is not None
    assert found.value == hits / n
    assert found.low == pytest.approx(low, abs=2e-4) and found.high == pytest.approx(high, abs=2e-4)
