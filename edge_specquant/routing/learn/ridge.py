"""Ridge regression on standardised columns; generalised cross-validation (Golub, Heath, Wahba 1979) picks its strength.

Takes a matrix and a target, gives a line over the raw columns. Knows no prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_STRENGTHS = np.logspace(-1, 4, 16)


@dataclass(frozen=True, slots=True)
class Line:
    """bias + weights . x, over raw (not standardised) columns."""

    bias: float
    weights: Floats

    def __call__(self, columns: Floats) -> Floats:
        """(n,) values for (n, k) columns."""
        return columns @ self.weights + self.bias


def fit_line(columns: Floats, target: Floats) -> Line:
    """columns (n, k), target (n,). Columns that never vary get weight 0."""
    mean, spread = columns.mean(axis=0), columns.std(axis=0)
    varies = spread > 1e-9
    if not varies.any():
        return Line(float(target.mean()), np.zeros(columns.shape[1]))
    scaled = (columns[:, varies] - mean[varies]) / spread[varies]
    centred = target - target.mean()
    left, singular, right = np.linalg.svd(scaled, full_matrices=False)
    projected = left.T @ centred
    strength = min(_STRENGTHS, key=lambda alpha: _gcv(left, singular, projected, centred, alpha))
    weights = np.zeros(columns.shape[1])
    weights[varies] = (right.T @ (projected * singular / (singular**2 + strength))) / spread[varies]
    return Line(float(target.mean() - mean @ weights), weights)


def _gcv(left: Floats, singular: Floats, projected: Floats, centred: Floats, alpha: float) -> float:
    shrink = singular**2 / (singular**2 + alpha)
    residual = centred - left @ (shrink * projected)
    freedom = max(1e-9, len(centred) - 1 - shrink.sum())
    return float((residual @ residual) / freedom**2)
