"""Two thresholds on a score: the cheapest split of prompts into three tiers that agrees well enough.

Takes a score, and seconds and agreement of each prompt in each tier; gives the split. Pure numpy; knows no features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """low below `medium`, medium below `high`, high from there on."""

    medium: float
    high: float

    def tiers(self, scores: Floats) -> Ints:
        """0, 1 or 2 for each score."""
        return (scores >= self.medium).astype(np.int64) + (scores >= self.high)


def best_split(scores: Floats, seconds: Floats, agreement: Floats, wanted: float, bounds: tuple[float, float]) -> Split:
    """The split of least total seconds whose mean agreement is at least `wanted`; all high when none is.

    scores (n,); seconds, agreement (n, 3), tier by column. bounds: no prompt scores outside; a threshold that nothing
    should reach is put there. Exact: all splits between neighbouring scores are tried.
    """
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    time = _costs(seconds[order])
    agrees = _costs(agreement[order]) / len(scores)
    allowed = _splittable(ranked)
    feasible = (agrees >= wanted - 1e-12) & allowed[:, None] & allowed[None, :]
    feasible &= np.triu(np.ones_like(feasible))  # the high threshold is not below the medium one
    if not feasible.any():
        return Split(bounds[0], bounds[0])
    i, j = np.unravel_index(np.where(feasible, time, np.inf).argmin(), time.shape)
    return Split(_between(ranked, int(i), bounds), _between(ranked, int(j), bounds))


def _costs(by_tier: Floats) -> Floats:
    """(n + 1, n + 1) sums with prompts [0, i) low, [i, j) medium, [j, n) high; only i <= j has a meaning."""
    sums = np.vstack([np.zeros((1, 3)), by_tier.cumsum(axis=0)])
    low, medium, high = sums.T
    total: Floats = low[:, None] + (medium[None, :] - medium[:, None]) + (high[-1] - high)[None, :]
    return total


def _splittable(ranked: Floats) -> NDArray[np.bool_]:
    """Equal scores cannot be parted."""
    inner = ranked[1:] > ranked[:-1]
    return np.concatenate([[True], inner, [True]])


def _between(ranked: Floats, position: int, bounds: tuple[float, float]) -> float:
    if position == 0:
        return bounds[0]
    if position == len(ranked):
        return bounds[1]
    return float((ranked[position - 1] + ranked[position]) / 2)
