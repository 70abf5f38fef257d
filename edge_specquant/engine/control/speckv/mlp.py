"""A small multilayer perceptron for regression: one hidden layer, inputs standardised, trained with Adam. Numpy only.

Takes and gives arrays; the same data and seed give the same weights. Knows nothing of drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_BATCH = 200
_RATE = 3e-3
_MOMENTS = (0.9, 0.999)
_TINY = 1e-8
_DECAY = 1e-4  # L2 penalty on the weights
_PATIENCE = 12  # epochs without a better validation error


@dataclass(frozen=True, slots=True)
class Mlp:
    """Weights of n inputs -> hidden ReLU units -> 1 output; mean and scale standardise the inputs."""

    mean: Values
    scale: Values
    w1: Values
    b1: Values
    w2: Values
    b2: float

    def predict(self, inputs: Values) -> Values:
        """[n, n_inputs] -> [n]."""
        hidden = np.maximum((inputs - self.mean) / self.scale @ self.w1 + self.b1, 0.0)
        outputs: Values = hidden @ self.w2 + self.b2
        return outputs

    @property
    def n_inputs(self) -> int:
        """Columns of the inputs."""
        return len(self.mean)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        arrays = {name: getattr(self, name).tolist() for name in ("mean", "scale", "w1", "b1", "w2")}
        return arrays | {"b2": self.b2}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Mlp:
        """From `as_dict`. Raises KeyError, TypeError, ValueError on anything else."""
        arrays = {name: np.asarray(plain[name], dtype=np.float64) for name in ("mean", "scale", "w1", "b1", "w2")}
        made = cls(**arrays, b2=float(plain["b2"]))
        n, hidden = made.n_inputs, len(made.b1)
        shapes = ((n,), (n,), (n, hidden), (hidden,), (hidden,))
        if tuple(array.shape for array in arrays.values()) != shapes or not np.all(made.scale > 0):
            raise ValueError(f"weights of shapes {[array.shape for array in arrays.values()]} make no network")
        if not all(np.isfinite(array).all() for array in arrays.values()) or not np.isfinite(made.b2):
            raise ValueError("a weight is not a finite number")
        return made


@dataclass(frozen=True, slots=True)
class Fit:
    """The network of the best epoch, with its mean squared error on the validation rows."""

    mlp: Mlp
    n_epochs: int
    validation_error: float


def fit(
    inputs: Values,
    outputs: Values,
    validation: NDArray[np.bool_],
    *,
    hidden: int = 16,
    max_epochs: int = 200,
    seed: int = 0,
) -> Fit:
    """Trains on the rows outside `validation`, and stops when the error on those inside no longer falls.

    inputs [n, n_inputs], outputs [n], validation [n] with rows on both sides.
    """
    rng = np.random.default_rng(seed)
    train = np.flatnonzero(~validation)
    assert len(train) and validation.any()
    mean, scale = inputs[train].mean(axis=0), inputs[train].std(axis=0)
    scale = np.where(scale > _TINY, scale, 1.0)
    x, y = (inputs - mean) / scale, outputs
    weights = _start(rng, x.shape[1], hidden, float(y[train].mean()))
    adam = _Adam(weights)
    best, best_error, best_epoch, epoch = [w.copy() for w in weights], np.inf, 0, 0
    for epoch in range(1, max_epochs + 1):
        order = rng.permutation(train)
        for at in range(0, len(order), _BATCH):
            rows = order[at : at + _BATCH]
            adam.step(weights, gradient(weights, x[rows], y[rows]))
        error = float(np.mean((_forward(weights, x[validation])[1] - y[validation]) ** 2))
        if error < best_error - 1e-7:
            best, best_error, best_epoch = [w.copy() for w in weights], error, epoch
        elif epoch - best_epoch >= _PATIENCE:
            break
    w1, b1, w2, b2 = best
    return Fit(Mlp(mean, scale, w1, b1, w2, float(b2[0])), best_epoch, best_error)


def _start(rng: np.random.Generator, n_inputs: int, hidden: int, mean_output: float) -> list[Values]:
    """He et al. 2015 for the hidden layer; the output starts near the mean."""
    w1 = rng.normal(0.0, np.sqrt(2 / n_inputs), (n_inputs, hidden))
    w2 = rng.normal(0.0, np.sqrt(1 / hidden), hidden)
    return [w1, np.zeros(hidden), w2, np.array([mean_output])]


def _forward(weights: list[Values], x: Values) -> tuple[Values, Values]:
    w1, b1, w2, b2 = weights
    hidden = np.maximum(x @ w1 + b1, 0.0)
    return hidden, hidden @ w2 + b2[0]


def gradient(weights: list[Values], x: Values, y: Values) -> list[Values]:
    """Of half the mean squared error, with the L2 penalty on both weight matrices."""
    w1, _, w2, _ = weights
    hidden, outputs = _forward(weights, x)
    delta = (outputs - y) / len(y)
    back = np.outer(delta, w2) * (hidden > 0)
    return [
        x.T @ back + _DECAY * w1,
        back.sum(axis=0),
        hidden.T @ delta + _DECAY * w2,
        np.array([delta.sum()]),
    ]


class _Adam:
    """Kingma & Ba 2015."""

    def __init__(self, weights: list[Values]) -> None:
        self._first = [np.zeros_like(w) for w in weights]
        self._second = [np.zeros_like(w) for w in weights]
        self._n_steps = 0

    def step(self, weights: list[Values], gradients: list[Values]) -> None:
        """Changes the weights in place."""
        self._n_steps += 1
        one, two = _MOMENTS
        for weight, gradient, first, second in zip(weights, gradients, self._first, self._second, strict=True):
            first += (1 - one) * (gradient - first)
            second += (1 - two) * (gradient**2 - second)
            unbiased = first / (1 - one**self._n_steps)
            spread = np.sqrt(second / (1 - two**self._n_steps))
            weight -= _RATE * unbiased / (spread + _TINY)
