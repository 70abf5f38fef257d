"""The fit: keeps its promise, beats length only where there is something to see, and says so where there is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.errors import FileError
from edge_specquant.routing.features.features import Features
from edge_specquant.routing.learn.fit import fit_policy
from edge_specquant.routing.learn.fit_data import build_problem
from edge_specquant.routing.learn.ridge import fit_line
from edge_specquant.routing.learn.strategies import always, blind_seconds, evaluate, oracle
from edge_specquant.routing.learn.thresholds import best_split
from edge_specquant.routing.policy.policy import parse_policy
from edge_specquant.routing.policy.policy_file import render_policy
from edge_specquant.routing.records.measurements import Measured

MakeMeasured = Callable[..., list[Measured]]


def by_math(features: Features, rng: np.random.Generator) -> dict[str, float]:
    """Formulas are what the small sibling fails on."""
    q4 = 1.0 - 1.8 * features.math_share
    return {"q4": float(np.clip(q4 + rng.normal(0, 0.02), 0, 1)), "q8": 0.97}


def by_length(features: Features, rng: np.random.Generator) -> dict[str, float]:
    q4 = 1.0 - features.n_tokens / 500
    return {"q4": float(np.clip(q4 + rng.normal(0, 0.02), 0, 1)), "q8": 0.97}


def by_chance(features: Features, rng: np.random.Generator) -> dict[str, float]:
    del features
    return {"q4": float(rng.uniform(0.4, 1.0)), "q8": 0.97}


def test_it_beats_length_where_another_feature_tells(make_measured: MakeMeasured) -> None:
    result = fit_policy(make_measured(200, by_math), name="x", family="f", wanted=0.9)
    assert result.beats_length
    assert "beats length-only" in result.verdict
    assert result.policy.weights["math"] > 0


@pytest.mark.parametrize("agreements", [by_length, by_chance])
def test_it_falls_back_to_length_where_nothing_else_tells(make_measured: MakeMeasured, agreements: object) -> None:
    result = fit_policy(make_measured(200, agreements), name="x", family="f", wanted=0.9)
    assert not result.beats_length
    assert "does not beat length-only" in result.verdict
    assert set(result.policy.weights) == {"length"}


def test_longer_may_be_easier(make_measured: MakeMeasured) -> None:
    def easier(features: Features, rng: np.random.Generator) -> dict[str, float]:
        return {"q4": 1.0 - by_length(features, rng)["q4"] * 0.5, "q8": 0.97}

    policy = fit_policy(make_measured(200, easier), name="x", family="f", wanted=0.9).policy
    assert policy.weights["length"] < 0


@pytest.mark.parametrize("wanted", [0.7, 0.85, 0.95, 0.999, 1.0])
def test_the_wanted_agreement_is_kept_on_the_prompts_it_was_fitted_to(
    make_measured: MakeMeasured, wanted: float
) -> None:
    measured = make_measured(120, by_math)
    policy = fit_policy(measured, name="x", family="f", wanted=wanted).policy
    from edge_specquant.routing.router import route

    taken = [(one, route(one.features, policy, available=["q4", "q8", "f16"]).target) for one in measured]
    assert np.mean([one.siblings[target].agreement for one, target in taken]) >= wanted - 1e-9


def test_the_policy_survives_its_file(make_measured: MakeMeasured) -> None:
    policy = fit_policy(make_measured(60, by_math), name="x", family="f", wanted=0.9).policy
    assert parse_policy(render_policy(policy), "x") == policy


def test_the_same_measurements_give_the_same_fit(make_measured: MakeMeasured) -> None:
    first, second = (fit_policy(make_measured(60, by_math), name="x", family="f", wanted=0.9) for _ in range(2))
    assert first == second


def test_two_siblings_are_enough_and_one_is_not(make_measured: MakeMeasured) -> None:
    def only(names: set[str]) -> list[Measured]:
        from dataclasses import replace

        return [
            replace(one, siblings={name: found for name, found in one.siblings.items() if name in names})
            for one in make_measured(60, by_math)
        ]

    result = fit_policy(only({"q4", "f16"}), name="x", family="f", wanted=0.9)
    assert result.policy.tiers["low"].target == result.policy.tiers["medium"].target == "q4"
    with pytest.raises(FileError, match="a cheaper sibling"):
        fit_policy(only({"f16"}), name="x", family="f", wanted=0.9)
    with pytest.raises(FileError, match="at least 20"):
        fit_policy(make_measured(19, by_math), name="x", family="f", wanted=0.9)


grid = st.lists(st.integers(0, 5), min_size=2, max_size=7)


@settings(max_examples=200, deadline=None)
@given(grid, st.randoms(use_true_random=False), st.floats(0, 1))
def test_the_split_is_the_best_there_is(scores: list[int], random: object, wanted: float) -> None:
    n = len(scores)
    rng = np.random.default_rng(random.randrange(10**6))  # type: ignore[attr-defined]
    seconds, agreement = np.sort(rng.random((n, 3)), axis=1), np.sort(rng.random((n, 3)), axis=1)
    agreement[:, 2] = 1.0
    marks = np.asarray(scores, dtype=np.float64)
    split = best_split(marks, seconds, agreement, wanted, (-1.0, 9.0))
    rows = np.arange(n)

    def cost(tiers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[float, bool]:
        return seconds[rows, tiers].sum(), agreement[rows, tiers].mean() >= wanted - 1e-12

    cuts = [-1.0, *(level + 0.5 for level in range(6)), 9.0]
    every = [
        cost((marks >= low).astype(np.int64) + (marks >= high))
        for low, high in itertools.product(cuts, cuts)
        if low <= high
    ]
    found, kept = cost(split.tiers(marks))
    assert kept
    assert found == pytest.approx(min(time for time, feasible in every if feasible))


def test_no_router_beats_the_oracle_and_constants_save_nothing(make_measured: MakeMeasured) -> None:
    problem = build_problem(make_measured(100, by_math))
    chosen = oracle(problem, 0.9)
    best = evaluate("oracle", problem, chosen)
    assert best.agreement >= 0.9
    result = fit_policy(make_measured(100, by_math), name="x", family="f", wanted=best.agreement)
    routed = [row for row in result.rows if row.name == "all signals"]
    assert all(row.seconds >= best.seconds - 1e-9 for row in routed if row.agreement >= best.agreement)
    assert all(row.saving == pytest.approx(0.0, abs=1e-9) for row in always(problem))


def test_the_coin_pays_between_its_siblings() -> None:
    seconds, agreement = np.array([1.0, 2.0, 4.0]), np.array([0.6, 0.9, 1.0])
    assert blind_seconds(seconds, agreement, 0.5) == 1.0
    assert blind_seconds(seconds, agreement, 0.75) == pytest.approx(1.5)
    assert blind_seconds(seconds, agreement, 0.95) == pytest.approx(3.0)
    assert blind_seconds(seconds, agreement, 1.0) == 4.0


def test_a_line_is_found_and_constant_columns_are_left_out() -> None:
    rng = np.random.default_rng(3)
    columns = np.column_stack([rng.random(400), np.full(400, 2.0), rng.random(400)])
    line = fit_line(columns, 0.5 + columns @ np.array([1.0, 0.0, -2.0]) + rng.normal(0, 0.01, 400))
    assert line.weights == pytest.approx([1.0, 0.0, -2.0], abs=0.05)
    assert line.weights[1] == 0
    assert fit_line(columns[:, 1:2], rng.random(400)).weights == pytest.approx([0.0])
