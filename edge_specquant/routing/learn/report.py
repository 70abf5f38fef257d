"""What routing did on recorded traffic, and what other routers would have done with it.

Takes route records and, for the rivals, what a fit learned of the siblings; gives figures. Where a prompt was measured
its own agreement is used, elsewhere the fit's expectation. Knows no files and draws no table.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..policy.policy import TIERS, Fitted, Policy
from ..policy.score import score_of
from ..policy.signals import NAMES, SIGNALS, values
from ..records.measurements import Measured
from ..records.record import RouteRecord
from .fit_data import Problem, Rate
from .strategies import Strategy, always, evaluate, oracle

Floats = NDArray[np.float64]
LONG_PROMPT_TOKENS = 50


@dataclass(frozen=True, slots=True)
class TierUse:
    """One tier's share of the traffic (0 to 1); medians a reply; acceptance None where nothing was drafted."""

    tier: str
    n: int
    share: float
    total_s: float
    decode_tokens_per_s: float | None
    acceptance_rate: float | None


@dataclass(frozen=True, slots=True)
class DecisionCost:
    """Median decide_s, and its median share of the time to the first token for prompts over 50 tokens."""

    n: int
    decide_s: float
    share_of_ttft: float | None
    by_spacy: float


@dataclass(frozen=True, slots=True)
class Report:
    """rivals: estimated mean cost of each strategy by siblings alone, empty without a fit; n_measured of the prompts
    were measured themselves. note says what the rivals rest on.
    """

    n: int
    tiers: tuple[TierUse, ...]
    decision: DecisionCost | None
    rivals: tuple[Strategy, ...]
    siblings: tuple[str, ...]
    n_measured: int
    note: str


def report_traffic(
    records: Sequence[RouteRecord], policy: Policy, measured: Mapping[str, Measured] | None = None
) -> Report:
    """policy: a fitted one, for the rivals. measured: by `record.hash_prompt` of the prompt."""
    own = measured or {}
    rivals: tuple[Strategy, ...] = ()
    siblings: tuple[str, ...] = ()
    note = "the policy was not fitted, so other routers cannot be estimated: run router fit"
    if policy.fitted and records:
        problem = _problem(records, policy.fitted, own)
        siblings, rivals = problem.siblings, _rivals(records, policy, policy.fitted, problem)
        note = f"by each sibling alone at the fit's rates, agreement expected by the fit; {policy.fitted.verdict}"
    return Report(
        n=len(records),
        tiers=tuple(_tier_use(tier, records) for tier in TIERS),
        decision=_decision_cost(records),
        rivals=rivals,
        siblings=siblings,
        n_measured=sum(record.prompt_hash in own for record in records),
        note=note,
    )


def _rivals(records: Sequence[RouteRecord], policy: Policy, fitted: Fitted, problem: Problem) -> tuple[Strategy, ...]:
    column = {name: number for number, name in enumerate(problem.siblings)}
    last = len(problem.siblings) - 1
    taken = np.array([column.get(record.target, last) for record in records])
    tier_column = {tier: column.get(policy.tiers[tier].target, last) for tier in TIERS}
    scored = [
        tier_column[_tier(record, policy, policy.tier_of(score_of(record.features, policy)))] for record in records
    ]
    by_length = [tier_column[_tier(record, policy, _length_tier(record, fitted))] for record in records]
    return (
        evaluate("as routed", problem, taken),
        *always(problem),
        evaluate("length only", problem, np.array(by_length)),
        evaluate(f"policy {policy.name}", problem, np.array(scored)),
        evaluate("oracle", problem, oracle(problem, fitted.wanted_agreement)),
    )


def _tier(record: RouteRecord, policy: Policy, scored: str) -> str:
    return policy.safe_tier if record.features.unsafe_reason else scored


def _length_tier(record: RouteRecord, fitted: Fitted) -> str:
    return fitted.length_only.tier_of(SIGNALS["length"].value(record.features))


def _problem(records: Sequence[RouteRecord], fitted: Fitted, own: Mapping[str, Measured]) -> Problem:
    names = tuple(fitted.siblings)
    rates = tuple(Rate(one.prefill_s_per_token, one.decode_s_per_token) for one in fitted.siblings.values())
    signals = np.array([[values(record.features)[name] for name in NAMES] for record in records])
    tokens = np.array([(record.n_prompt, record.n_generated) for record in records], dtype=np.float64)
    agreement = np.stack([_expected(fitted, name, signals) for name in names], axis=1)
    agreement[:, -1] = 1.0
    for row, record in enumerate(records):
        known = own.get(record.prompt_hash)
        if known and set(names) <= set(known.siblings):
            agreement[row] = [known.siblings[name].agreement for name in names]
    return Problem(
        siblings=names,
        tiers=(0, max(0, len(names) - 2), len(names) - 1),
        signals=signals,
        seconds=tokens @ np.array([(rate.prefill_s, rate.decode_s) for rate in rates]).T,
        agreement=agreement,
        groups=np.arange(len(records)),
        rates=rates,
        unsafe=np.array([record.features.unsafe_reason is not None for record in records]),
    )


def _expected(fitted: Fitted, name: str, signals: Floats) -> Floats:
    sibling = fitted.siblings[name]
    weights = np.array([sibling.agreement_weights.get(signal, 0.0) for signal in NAMES])
    expected: Floats = np.clip(signals @ weights + sibling.agreement_bias, 0.0, 1.0)
    return expected


def _tier_use(tier: str, records: Sequence[RouteRecord]) -> TierUse:
    mine = [record for record in records if record.tier == tier]
    decoded = [record for record in mine if record.n_generated > 1 and record.decode_s > 0]
    speeds = [(record.n_generated - 1) / record.decode_s for record in decoded]
    accepted = [record.acceptance_rate for record in mine if record.acceptance_rate is not None]
    return TierUse(
        tier=tier,
        n=len(mine),
        share=len(mine) / len(records) if records else 0.0,
        total_s=_median([record.total_s for record in mine]) or 0.0,
        decode_tokens_per_s=_median(speeds),
        acceptance_rate=_median(accepted),
    )


def _decision_cost(records: Sequence[RouteRecord]) -> DecisionCost | None:
    timed = [record for record in records if record.decide_s is not None]
    if not timed:
        return None
    shares = [
        (record.decide_s or 0.0) / record.ttft_s
        for record in timed
        if record.ttft_s and record.features.n_tokens > LONG_PROMPT_TOKENS
    ]
    return DecisionCost(
        n=len(timed),
        decide_s=statistics.median(record.decide_s or 0.0 for record in timed),
        share_of_ttft=_median(shares),
        by_spacy=sum(record.features.estimator == "spacy" for record in timed) / len(timed),
    )


def _median(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return statistics.median(found) if found else None
