"""How well draft lengths were chosen, from traces: the policy table with bootstrap intervals, what the network looks
at, and what a decision costs.

Networks are judged on replies that they were not trained on. The bootstrap resamples whole replies, since rounds of one
reply depend on each other (the paper resamples steps, which makes its intervals narrower than they are). Pure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ...engine.control.costs import Costs
from ...engine.control.draft_length import Entropy
from ...engine.control.goodput import Goodput
from ...engine.control.speckv.mlp import Mlp
from ...engine.control.speckv.speckv import FEATURES, GAMMAS, Predictor, SpecKV
from ...engine.control.speckv.speckv_training import Rows, by_reply, fit_rows, rows_of
from ...engine.control.traces import TraceRound
from ...engine.signals import Offer
from ...errors import UsageError
from ..measure.statistics import N_RESAMPLES, Interval
from . import draft_length_policies as policies
from .draft_length_policies import LENGTHS, LONGEST, Outcome, Pair, PairCosts, Reply

BASELINE = "fixed-4"
N_FOLDS = 5
_SEED = 20_260_102
_N_TIMED = 2000
_FEWEST_REPLIES = 4


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy: tokens per round, its gain over fixed-4 as a share and the two-sided p-value of that; tokens per
    second and the gain over the target alone, None without costs; mean draft length."""

    name: str
    tokens_per_round: Interval
    over_baseline: Interval
    p_value: float
    tokens_per_s: Interval | None
    over_plain: Interval | None
    mean_n_draft: float


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """All policies on the rounds of one pair, or of all."""

    title: str
    n_replies: int
    n_rounds: int
    rows: tuple[PolicyRow, ...]


@dataclass(frozen=True, slots=True)
class GammaReport:
    """importances sum to 1 (permutation, on unseen replies); explained: share of the acceptance's variance that the
    network explains there, from the previous draft and (as the paper does) from the same one. decision_s: median."""

    tables: tuple[PolicyTable, ...]
    importances: dict[str, float]
    explained: float
    explained_same_round: float
    decision_s: float
    n_left_out: int


def evaluate(
    rounds: Sequence[TraceRound], costs: Mapping[Pair, PairCosts], given: Predictor | None = None
) -> GammaReport:
    """Everything. given: judge this network instead of cross-fitted ones. Raises UsageError for too few rounds."""
    numbered = [(i, r) for i, found in enumerate(by_reply(rounds)) if (r := _reply(found, costs)) is not None]
    if len(numbered) < _FEWEST_REPLIES:
        raise UsageError(
            f"only {len(numbered)} replies have rounds of {LONGEST} draft tokens by a sibling, and {_FEWEST_REPLIES} "
            f"are the least; record more: edge-specquant run FAMILY PROMPT --draft q4 --n-draft {LONGEST} --record FILE"
        )
    folds = _folds([i for i, _ in numbered])
    rows, same = rows_of(rounds), rows_of(rounds, same_round=True)
    networks = {fold: given.mlp if given else _fitted(rows, folds, fold) for fold in set(folds.values())}
    paper = {fold: _fitted(same, folds, fold) for fold in set(folds.values())}
    replies = [reply for _, reply in numbered]
    of_reply = [networks[folds[i]] for i, _ in numbered]
    of_paper = [paper[folds[i]] for i, _ in numbered]
    outcomes = _outcomes(replies, of_reply, of_paper)
    n_full = sum(len(reply.rounds) for reply in replies)
    return GammaReport(
        tables=_tables(replies, outcomes),
        importances=_importances(rows, folds, networks),
        explained=_explained(rows, folds, networks),
        explained_same_round=_explained(same, folds, paper),
        decision_s=decision_seconds(Predictor(of_reply[0], "rate", ""), replies[0]),
        n_left_out=len(rounds) - n_full,
    )


def decision_seconds(predictor: Predictor, reply: Reply) -> float:
    """Median seconds of one choice of the controller, costs and ledger included."""
    costs = policies.NOMINAL
    controller = _speckv(reply, predictor.mlp, predictor.objective, costs.costs(reply.pair.draft))
    policies.one_round(controller, reply.rounds[0], costs)  # from here on it has seen a draft
    offers = [Offer(reply.pair.draft, LONGEST, n_behind=1)]
    times = []
    for _ in range(_N_TIMED):
        begun = time.perf_counter()
        controller.choose(offers, LONGEST)
        times.append(time.perf_counter() - begun)
    return median(times)


# -- cross-fitting ---------------------------------------------------------------------------------------------------


def _reply(found: Sequence[TraceRound], costs: Mapping[Pair, PairCosts]) -> Reply | None:
    full = policies.full_rounds(found)
    if not full:
        return None
    pair = policies.pair_of(full[0])
    return Reply(pair, full[0].task, full, costs.get(pair))


def _folds(numbers: Sequence[int]) -> dict[int, int]:
    order = np.random.default_rng(_SEED).permutation(np.array(numbers))
    return {int(number): place % N_FOLDS for place, number in enumerate(order)}


def _inside(rows: Rows, folds: Mapping[int, int], fold: int) -> NDArray[np.bool_]:
    return np.array([folds.get(int(number)) == fold for number in rows.reply], dtype=np.bool_)


def _fitted(rows: Rows, folds: Mapping[int, int], fold: int) -> Mlp:
    kept = ~_inside(rows, folds, fold)
    return fit_rows(Rows(rows.inputs[kept], rows.outputs[kept], rows.reply[kept])).mlp


def _explained(rows: Rows, folds: Mapping[int, int], networks: Mapping[int, Mlp]) -> float:
    """1 - error / variance around each gamma's own mean, on unseen replies."""
    error = variance = 0.0
    for fold, mlp in networks.items():
        inside = _inside(rows, folds, fold)
        x, y, gamma = rows.inputs[inside], rows.outputs[inside], rows.inputs[inside][:, -1]
        error += float(np.sum((np.clip(mlp.predict(x), 0, 1) - y) ** 2))
        known, all_gammas = rows.outputs[~inside], rows.inputs[~inside][:, -1]
        variance += sum(float(np.sum((y[gamma == g] - known[all_gammas == g].mean()) ** 2)) for g in np.unique(gamma))
    return 1 - error / variance if variance else 0.0


def _importances(rows: Rows, folds: Mapping[int, int], networks: Mapping[int, Mlp]) -> dict[str, float]:
    """Growth of the error on unseen replies when one input is shuffled, as shares (Breiman 2001)."""
    rng = np.random.default_rng(_SEED)
    grown = np.zeros(len(FEATURES))
    for fold, mlp in networks.items():
        inside = _inside(rows, folds, fold)
        x, y = rows.inputs[inside], rows.outputs[inside]
        before = np.sum((mlp.predict(x) - y) ** 2)
        for column in range(len(FEATURES)):
            mixed = x.copy()
            mixed[:, column] = rng.permutation(mixed[:, column])
            grown[column] += np.sum((mlp.predict(mixed) - y) ** 2) - before
    shares = np.maximum(grown, 0.0)
    return {name: float(share) for name, share in zip(FEATURES, shares / max(shares.sum(), 1e-12), strict=True)}


# -- policies --------------------------------------------------------------------------------------------------------


def _outcomes(replies: Sequence[Reply], networks: Sequence[Mlp], paper: Sequence[Mlp]) -> dict[str, list[Outcome]]:
    """Each policy on each reply. Policies that know time need the costs of every pair."""
    found = {"the target alone": [reply.outcome([0] * len(reply.rounds)) for reply in replies]}
    for gamma in GAMMAS:
        found[f"fixed-{gamma}"] = [reply.outcome([gamma] * len(reply.rounds)) for reply in replies]
    pair, task = (lambda r: r.pair), (lambda r: (r.pair, r.task))
    found["fixed-best, tokens"] = policies.best_fixed(replies, pair, GAMMAS, by_time=False)
    found["task oracle, tokens"] = policies.best_fixed(replies, task, GAMMAS, by_time=False)
    found["oracle, tokens"] = policies.oracle(replies, by_time=False)
    found["speckv, tokens (same round)"] = [
        policies.same_round(reply, Predictor(mlp, "tokens", "")) for reply, mlp in zip(replies, paper, strict=True)
    ]
    both = list(zip(replies, networks, strict=True))
    found["speckv, tokens"] = [policies.controlled(r, partial(_speckv, r, mlp, "tokens")) for r, mlp in both]
    if any(reply.costs is None for reply in replies):
        return found
    found["fixed-best, time"] = policies.best_fixed(replies, pair, LENGTHS, by_time=True)
    found["task oracle, time"] = policies.best_fixed(replies, task, LENGTHS, by_time=True)
    found["oracle, time"] = policies.oracle(replies, by_time=True)
    found["speckv, rate"] = [policies.controlled(r, partial(_speckv, r, mlp, "rate")) for r, mlp in both]
    found["entropy"] = [policies.controlled(r, lambda _: Entropy(LONGEST)) for r in replies]
    found["goodput"] = [policies.controlled(r, lambda costs: Goodput(costs, LONGEST)) for r in replies]
    return found


def _speckv(reply: Reply, mlp: Mlp, objective: str, costs: Costs) -> SpecKV:
    return SpecKV(Predictor(mlp, objective, ""), costs, LONGEST, lambda _: reply.rounds[0].size_ratio or 1.0)


# -- the bootstrap ---------------------------------------------------------------------------------------------------


def _tables(replies: Sequence[Reply], outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[PolicyTable, ...]:
    pairs = sorted({reply.pair for reply in replies})
    groups = [("all pairs", list(range(len(replies))))] if len(pairs) > 1 else []
    for pair in pairs:
        title = f"{pair.family} {pair.target}, drafts by {pair.draft}"
        groups.append((title, [i for i, reply in enumerate(replies) if reply.pair == pair]))
    return tuple(_table(title, chosen, outcomes) for title, chosen in groups)


def _table(title: str, chosen: Sequence[int], outcomes: Mapping[str, Sequence[Outcome]]) -> PolicyTable:
    sums = {name: _sums([made[i] for i in chosen]) for name, made in outcomes.items()}
    weights = np.random.default_rng(_SEED).multinomial(
        len(chosen), np.full(len(chosen), 1 / len(chosen)), size=N_RESAMPLES
    )
    plain = sums["the target alone"]
    rows = tuple(_row(name, each, sums[BASELINE], plain, weights) for name, each in sums.items())
    return PolicyTable(title, len(chosen), int(plain[:, 1].sum()), rows)


def _sums(made: Sequence[Outcome]) -> NDArray[np.float64]:
    """[replies, (tokens, rounds, seconds, drafted)]."""
    return np.array([(o.tokens.sum(), len(o.tokens), o.seconds.sum(), o.n_draft.sum()) for o in made], dtype=np.float64)


def _row(
    name: str,
    own: NDArray[np.float64],
    baseline: NDArray[np.float64],
    plain: NDArray[np.float64],
    weights: NDArray[np.int64],
) -> PolicyRow:
    n = len(own)
    own_all, base_all, plain_all = own.sum(axis=0), baseline.sum(axis=0), plain.sum(axis=0)
    drawn, base, alone = weights @ own, weights @ baseline, weights @ plain
    length, base_length = drawn[:, 0] / drawn[:, 1], base[:, 0] / base[:, 1]
    gain = length / base_length - 1
    p = 2 * min(np.mean(gain <= 0), np.mean(gain >= 0))
    timed = bool(np.isfinite(own_all[2]))
    rate, alone_rate = drawn[:, 0] / drawn[:, 2], alone[:, 0] / alone[:, 2]
    value = own_all[0] / own_all[2]
    plain_value = plain_all[0] / plain_all[2]
    return PolicyRow(
        name,
        _interval(own_all[0] / own_all[1], length, n),
        _interval((own_all[0] / own_all[1]) / (base_all[0] / base_all[1]) - 1, gain, n),
        float(min(1.0, max(p, 1 / N_RESAMPLES))),
        _interval(value, rate, n) if timed else None,
        _interval(value / plain_value - 1, rate / alone_rate - 1, n) if timed else None,
        float(own_all[3] / own_all[1]),
    )


def _interval(value: float, drawn: NDArray[np.float64], n: int) -> Interval:
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(float(value), float(low), float(high), n)
