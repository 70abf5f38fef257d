"""Medians with spread, ratios pair by pair, bootstrap intervals, intervals of proportions. Pure.

Ratios of speeds are averaged as logarithms, so that twice as fast and half as fast cancel. Repeats of one case are not
independent of each other: the bootstrap resamples cases first, then repeats within each (Davison & Hinkley 1997, 3.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_RESAMPLES = 10_000
CONFIDENCE = 0.95
MIN_REPEATS = 3  # of each case, before a difference between two sessions gets a p-value
_SEED = 20_260_101

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """median with the quartiles around it; n values."""

    median: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % confidence interval from n units (cases or questions).

    low and high are None where the sample is too small to tell.
    """

    value: float
    low: float | None
    high: float | None
    n: int

    def excludes(self, value: float) -> bool | None:
        """Whether the interval lies on one side of value; None when there is no interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= value <= self.high


def spread(values: Sequence[float]) -> Spread | None:
    """None for no values."""
    if not values:
        return None
    low, median, high = np.percentile(np.asarray(values, dtype=np.float64), (25, 50, 75))
    return Spread(float(median), float(low), float(high), len(values))


def ratio_interval(ratios_by_case: Sequence[Sequence[float]], n_resamples: int = N_RESAMPLES) -> Interval | None:
    """Geometric mean over cases of each case's median ratio, and its interval. One inner sequence a case.

    Needs two cases or two repeats for an interval; None for no ratios at all.
    """
    logs = [np.log(np.asarray(ratios, dtype=np.float64)) for ratios in ratios_by_case if len(ratios)]
    if not logs:
        return None
    value = float(np.mean([np.median(case) for case in logs]))
    if sum(len(case) for case in logs) < 2:
        return Interval(math.exp(value), None, None, len(logs))
    means = _resampled_means(logs, n_resamples)
    low, high = np.quantile(means, _tails())
    return Interval(math.exp(value), math.exp(float(low)), math.exp(float(high)), len(logs))


def difference_interval(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], n_resamples: int = N_RESAMPLES
) -> tuple[Interval, float | None] | None:
    """after / before as a geometric mean over cases, its interval, and the two-sided bootstrap p-value.

    Inner sequences are the repeats of one case, cases in the same order; repeats of before and after are not paired
    with each other. With fewer than MIN_REPEATS there is no interval and no p-value. None for no cases.
    """
    pairs = [(np.log(np.asarray(a)), np.log(np.asarray(b))) for a, b in zip(before, after, strict=True) if a and b]
    if not pairs:
        return None
    value = float(np.mean([np.median(b) - np.median(a) for a, b in pairs]))
    if min(min(len(a), len(b)) for a, b in pairs) < MIN_REPEATS:
        return Interval(math.exp(value), None, None, len(pairs)), None
    rng = np.random.default_rng(_SEED)
    means = np.zeros(n_resamples)
    for a, b in pairs:
        means += (_medians(rng, b, n_resamples) - _medians(rng, a, n_resamples)) / len(pairs)
    low, high = np.quantile(means, _tails())
    p = min(1.0, 2 * min(float((means <= 0).mean()), float((means >= 0).mean())))
    return Interval(math.exp(value), math.exp(float(low)), math.exp(float(high)), len(pairs)), max(p, 1 / n_resamples)


def mean_interval(values: Sequence[float], n_resamples: int = N_RESAMPLES) -> Interval | None:
    """Arithmetic mean of independent values with its percentile bootstrap interval."""
    if not values:
        return None
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return Interval(float(data[0]), None, None, 1)
    rng = np.random.default_rng(_SEED)
    means = data[rng.integers(0, data.size, (n_resamples, data.size))].mean(axis=1)
    low, high = np.quantile(means, _tails())
    return Interval(float(data.mean()), float(low), float(high), int(data.size))


def paired_mean_difference(
    before: Sequence[float], after: Sequence[float], n_resamples: int = N_RESAMPLES
) -> tuple[Interval, float | None] | None:
    """mean(after - before) over pairs, its interval and the two-sided bootstrap p-value."""
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    found = mean_interval([float(value) for value in differences], n_resamples)
    if found is None or found.low is None:
        return None if found is None else (found, None)
    rng = np.random.default_rng(_SEED)
    means = differences[rng.integers(0, differences.size, (n_resamples, differences.size))].mean(axis=1)
    p = min(1.0, 2 * min(float((means <= 0).mean()), float((means >= 0).mean())))
    return found, min(1.0, max(p, 1 / n_resamples))


def proportion(n_hits: int, n: int) -> Interval | None:
    """A share with Wilson's score interval; None for no trials."""
    if n == 0:
        return None
    z = 1.959964
    share = n_hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


def _resampled_means(logs: Sequence[Values], n_resamples: int) -> Values:
    rng = np.random.default_rng(_SEED)
    medians = np.stack([_medians(rng, case, n_resamples) for case in logs])
    chosen = rng.integers(0, len(logs), (n_resamples, len(logs)))
    return np.asarray(np.take_along_axis(medians.T, chosen, axis=1).mean(axis=1))


def _medians(rng: np.random.Generator, values: Values, n_resamples: int) -> Values:
    """Medians of resamples of one case's repeats."""
    return np.asarray(np.median(values[rng.integers(0, values.size, (n_resamples, values.size))], axis=1))


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
