"""The small network: learns a rule, is the same for the same seed, survives JSON, and stops before it learns noise."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.engine.control.speckv.mlp import Mlp, fit, gradient


def data(n: int, seed: int = 1, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A rule with a bend and a product, on inputs of very different scales."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    y = np.maximum(x[:, 0], 0) + 0.5 * x[:, 1] * x[:, 0] + noise * rng.normal(size=n)
    return x * [1000.0, 0.01, 1.0] + [5.0, 0.0, -3.0], y


def held_out(n: int) -> np.ndarray:
    return np.arange(n) % 5 == 0


def test_it_learns_a_rule_and_predicts_it_on_data_it_has_not_seen():
    x, y = data(3000)
    unseen_x, unseen_y = data(500, seed=2)
    made = fit(x, y, held_out(3000))
    error = np.mean((made.mlp.predict(unseen_x) - unseen_y) ** 2)
    assert error < 0.05 * np.var(unseen_y)
    assert made.validation_error < 0.05 * np.var(y)


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    x, y = data(400)
    one, two, other = (fit(x, y, held_out(400), max_epochs=5, seed=seed).mlp for seed in (3, 3, 4))
    assert one.as_dict() == two.as_dict() != other.as_dict()


def test_it_stops_early_on_pure_noise_and_stays_near_the_mean():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.normal(size=300)
    made = fit(x, y, held_out(300), max_epochs=500)
    assert made.n_epochs < 400
    assert made.validation_error < 1.3 * np.var(y[held_out(300)])


def test_a_constant_input_changes_nothing():
    x, y = data(400)
    made = fit(np.column_stack([x, np.full(400, 7.0)]), y, held_out(400), max_epochs=5).mlp
    assert np.isfinite(made.predict(np.column_stack([x, np.full(400, 9.0)]))).all()


def test_the_gradient_is_the_slope_of_the_loss():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    weights = [rng.normal(size=shape) for shape in ((3, 4), (4,), (4,), (1,))]

    def loss() -> float:
        w1, b1, w2, b2 = weights
        outputs = np.maximum(x @ w1 + b1, 0) @ w2 + b2[0]
        return float(np.mean((outputs - y) ** 2) / 2 + 0.5e-4 * (np.sum(w1**2) + np.sum(w2**2)))

    for weight, slope in zip(weights, gradient(weights, x, y), strict=True):
        for at in np.ndindex(weight.shape):
            kept = weight[at]
            weight[at] = kept + 1e-6
            above = loss()
            weight[at] = kept - 1e-6
            below = loss()
            weight[at] = kept
            assert slope[at] == pytest.approx((above - below) / 2e-6, abs=1e-6)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_json_and_back_is_the_same_network(n_inputs: int, hidden: int, seed: int):
    rng = np.random.default_rng(seed)
    mlp = Mlp(
        rng.normal(size=n_inputs),
        rng.uniform(0.1, 2, n_inputs),
        rng.normal(size=(n_inputs, hidden)),
        rng.normal(size=hidden),
        rng.normal(size=hidden),
        float(rng.normal()),
    )
    again = Mlp.from_dict(json.loads(json.dumps(mlp.as_dict())))
    x = rng.normal(size=(9, n_inputs))
    assert np.array_equal(again.predict(x), mlp.predict(x))


@pytest.mark.parametrize(
    ("name", "value"),
    [("b1", [0.0]), ("scale", [0.0, 1.0, 1.0]), ("w2", [float("nan")] * 16), ("b2", "x"), ("w1", "?"), ("mean", None)],
)
def test_damaged_weights_are_no_network(name: str, value: object):
    x, y = data(100)
    plain = fit(x, y, held_out(100), max_epochs=1).mlp.as_dict() | {name: value}
    with pytest.raises((ValueError, TypeError, KeyError)):
        Mlp.from_dict(plain)
