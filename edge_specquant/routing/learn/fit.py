"""Fits a router to measurements: least time with an expected agreement of at least X, and checks it on unseen prompts.

Takes measured prompts, gives a policy and the table that says whether it was worth it. Two routers are fitted, one on
all signals and one on length alone; each prompt is judged by a router that never saw it (folds by group). The policy is
the one on all signals only where that beats length-only beyond chance. Pure: knows no engine and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..policy.policy import TIERS, Fitted, LengthRouter, Policy, SiblingModel, Tier
from ..policy.signals import NAMES
from ..records.measurements import Measured
from .fit_data import Problem, build_problem
from .ridge import Line, fit_line
from .strategies import Strategy, always, evaluate, oracle, savings
from .thresholds import Split, best_split

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
N_FOLDS = 5
HIGH = 2  # the safe tier of a fitted policy
N_RESAMPLES = 1000
_SEED = 20260918
_MARGIN = 0.5  # how far beyond every possible score a threshold lies that nothing should reach


@dataclass(frozen=True, slots=True)
class FitResult:
    """rows: strategies on unseen prompts; advantage: fitted minus length-only saving, with its 90 % interval."""

    policy: Policy
    rows: tuple[Strategy, ...]
    siblings: tuple[str, ...]
    advantage: tuple[float, float, float]
    beats_length: bool
    verdict: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Router:
    """A line over the signals, cut in three."""

    line: Line
    split: Split

    def choose(self, problem: Problem, rows: Ints) -> Ints:
        tiers = np.where(problem.unsafe[rows], HIGH, self.split.tiers(self.line(problem.signals[rows])))
        return np.asarray(problem.tiers)[tiers]


def fit_policy(measured: Sequence[Measured], *, name: str, family: str, wanted: float) -> FitResult:
    """wanted: mean agreement with the reference, 0 to 1. Raises FileError for too few or mixed measurements."""
    problem = build_problem(measured)
    fitted = _held_out(problem, wanted, _fit_all_signals)
    by_length = _held_out(problem, wanted, _fit_length)
    rows = (
        *always(problem),
        evaluate("length only", problem, by_length),
        evaluate("all signals", problem, fitted),
        evaluate("oracle", problem, oracle(problem, wanted)),
    )
    advantage = _advantage(problem, fitted, by_length)
    beats = advantage[1] > 0
    verdict = _verdict(beats, advantage)
    everything = np.arange(len(measured))
    final = (_fit_all_signals if beats else _fit_length)(problem, everything, wanted)
    policy = _policy(name, family, wanted, problem, final, verdict)
    return FitResult(policy, rows, problem.siblings, advantage, beats, verdict, tuple(_notes(problem, rows, wanted)))


def _fit_all_signals(problem: Problem, rows: Ints, wanted: float) -> _Router:
    """Score: the expected price of the low tier."""
    return _cut(problem, rows, wanted, fit_line(problem.signals[rows], _price(problem, rows)))


def _fit_length(problem: Problem, rows: Ints, wanted: float) -> _Router:
    """Score: the length signal, or its negative where the low tier is a better bargain for longer prompts."""
    sign = -1.0 if np.cov(problem.length[rows], _price(problem, rows))[0, 1] < 0 else 1.0
    weights = np.zeros(len(NAMES))
    weights[NAMES.index("length")] = sign
    return _cut(problem, rows, wanted, Line(0.0, weights))


def _price(problem: Problem, rows: Ints) -> Floats:
    """Agreement that the low tier loses for each second it saves: what a knapsack is packed by."""
    seconds, agreement = problem.tier_seconds[rows], problem.tier_agreement[rows]
    price: Floats = (agreement[:, HIGH] - agreement[:, 0]) / np.maximum(seconds[:, HIGH] - seconds[:, 0], 1e-9)
    return price


def _cut(problem: Problem, rows: Ints, wanted: float, line: Line) -> _Router:
    scores = line(problem.signals[rows])
    split = best_split(scores, problem.tier_seconds[rows], problem.tier_agreement[rows], wanted, _bounds(line))
    return _Router(line, split)


def _bounds(line: Line) -> tuple[float, float]:
    """Signals are 0 to 1, so no prompt scores outside this."""
    lowest = line.bias + line.weights[line.weights < 0].sum()
    highest = line.bias + line.weights[line.weights > 0].sum()
    return float(lowest - _MARGIN), float(highest + _MARGIN)


def _held_out(problem: Problem, wanted: float, fit: Callable[[Problem, Ints, float], _Router]) -> Ints:
    """Each prompt's sibling, chosen by a router fitted without its fold."""
    n_groups = int(problem.groups.max()) + 1
    folds = (np.random.default_rng(_SEED).permutation(n_groups) % N_FOLDS)[problem.groups]
    chosen = np.zeros(len(folds), dtype=np.int64)
    for fold in range(N_FOLDS):
        held = np.flatnonzero(folds == fold)
        if held.size:
            chosen[held] = fit(problem, np.flatnonzero(folds != fold), wanted).choose(problem, held)
    return chosen


def _advantage(problem: Problem, fitted: Ints, by_length: Ints) -> tuple[float, float, float]:
    """(difference of savings, 5th, 95th percentile) over bootstrap resamples of the groups."""
    rng = np.random.default_rng(_SEED)
    members = [np.flatnonzero(problem.groups == group) for group in range(int(problem.groups.max()) + 1)]
    differences = []
    for _ in range(N_RESAMPLES):
        sample = np.concatenate([members[group] for group in rng.integers(len(members), size=len(members))])
        differences.append(savings(problem, fitted, sample) - savings(problem, by_length, sample))
    everything = np.arange(len(fitted))
    here = savings(problem, fitted, everything) - savings(problem, by_length, everything)
    return here, float(np.quantile(differences, 0.05)), float(np.quantile(differences, 0.95))


def _verdict(beats: bool, advantage: tuple[float, float, float]) -> str:
    difference, low, high = (100 * value for value in advantage)
    interval = f"{difference:+.1f} points of saving, 90 % interval {low:+.1f} to {high:+.1f}"
    if beats:
        return f"the router on all signals beats length-only ({interval}); it is used"
    return f"the router on all signals does not beat length-only ({interval}); length-only is used"


def _notes(problem: Problem, rows: Sequence[Strategy], wanted: float) -> list[str]:
    notes = []
    if len(problem.siblings) == 2:
        notes.append(f"there are two siblings: {problem.siblings[0]} answers low and medium prompts")
    constants = [row for row in rows if row.name.startswith("always") and row.agreement >= wanted]
    cheapest = min(constants, key=lambda row: row.seconds)
    routed = [row for row in rows if row.name in ("length only", "all signals")]
    for row in routed:
        if row.agreement < wanted:
            notes.append(f"{row.name}: {row.agreement:.3f} on unseen prompts, below the wanted {wanted:g}")
        if row.saving <= 0:
            notes.append(f"{row.name}: no faster than a coin between siblings with the same agreement")
    if all(row.seconds >= cheapest.seconds for row in routed):
        notes.append(f"{cheapest.name} reaches {cheapest.agreement:.3f} in less time than either router")
    return notes


def _policy(name: str, family: str, wanted: float, problem: Problem, router: _Router, verdict: str) -> Policy:
    everything = np.arange(len(problem.seconds))
    length = _fit_length(problem, everything, wanted)
    sign = float(length.line.weights[NAMES.index("length")])
    return Policy(
        name=name,
        about=f"fitted to {family}: least time with {wanted:.0%} expected agreement with {problem.siblings[-1]}",
        weights={signal: float(w) for signal, w in zip(NAMES, router.line.weights, strict=True) if w},
        medium=router.split.medium,
        high=router.split.high,
        tiers=_tiers(problem),
        bias=router.line.bias,
        fitted=Fitted(
            family=family,
            n_prompts=len(problem.seconds),
            wanted_agreement=wanted,
            verdict=verdict,
            siblings={sibling: _sibling(problem, i) for i, sibling in enumerate(problem.siblings)},
            length_only=LengthRouter(sign, length.split.medium, length.split.high),
        ),
    )


def _tiers(problem: Problem) -> dict[str, Tier]:
    low, medium, high = (problem.siblings[column] for column in problem.tiers)
    drafts = ("lookup", f"lookup+{low}" if medium != low else "lookup", f"lookup+{low}")
    targets = zip(TIERS, (low, medium, high), drafts, strict=True)
    return {name: Tier(target, draft, "goodput") for name, target, draft in targets}


def _sibling(problem: Problem, column: int) -> SiblingModel:
    line = fit_line(problem.signals, problem.agreement[:, column])
    rate = problem.rates[column]
    weights = {signal: float(weight) for signal, weight in zip(NAMES, line.weights, strict=True) if weight}
    return SiblingModel(rate.prefill_s, rate.decode_s, line.bias, weights)
