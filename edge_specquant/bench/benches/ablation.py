"""`bench ablation FAMILY`: each part alone, then together, with speed, agreement with the reference, and memory.

The table that SpecQuant (arXiv 2609.21704) lacks: how much comes from quantization, speculation, the controller,
lookup, the cascade, transplanted caches, width padding, routing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...gguf.family.family import Family
from ...runtime import EngineOptions
from ..evaluation.agreement import Agreement
from ..evaluation.agreement_eval import measure_agreement
from ..measure.measurement import Case, Contestant
from ..measure.runner import Plan
from ..reports import tables
from ..reports.result import Result, Say
from ..reports.summary import Summary, summarise
from ..reports.tables import Table
from ..runs.local_runs import Setting, alone
from ..runs.race import hold_race, race_result
from ..runs.settings import ablation_settings, reference_of, router_of
from ..runs.workplace import open_workplace

ROUTING_POLICY = "fast"
N_QUALITY = 5  # cases whose replies judge the siblings where the manifest does not


def bench_ablation(
    family: Family,
    options: EngineOptions,
    cases: Sequence[Case],
    plan: Plan,
    say: Say,
    *,
    policy: str = ROUTING_POLICY,
    peers: Sequence[Contestant] = (),
) -> Result:
    """Measures every part alone. Raises FamilyError, EngineError, UsageError for an unknown policy."""
    settings = ablation_settings(family.variants, router_of(policy, family.variants))
    reference = alone(reference_of(family.variants)).name
    begun_s = plan.clock()
    quality = _quality(family, options, cases, say)
    with open_workplace(family, options, say=say) as place:
        contestants = [*(place.contestant(setting) for setting in settings), *peers]
        outcome = hold_race(contestants, cases, plan.left(begun_s), say)
        summaries = summarise(outcome, reference)
        routed = _routed_quality(settings, cases, quality, reference_of(family.variants))
        table = ablation_table(family.name, reference, summaries, {**quality, **routed})
        return race_result(
            "ablation",
            f"{family.name}: ablation",
            place,
            outcome,
            reference,
            tables=(table,),
            verdict=_verdict(reference, summaries),
            quality={**quality, **routed},
            policy=policy,
        )


@dataclass(frozen=True, slots=True)
class Quality:
    """How close a sibling (or a mix of them) is to the reference, the same words in front; kld in nats."""

    top1_agreement: float
    mean_kld: float


def _quality(family: Family, options: EngineOptions, cases: Sequence[Case], say: Say) -> dict[str, Quality]:
    """As the manifest has it; else measured on the first cases' replies."""
    smaller = [name for name in family.variants if name != reference_of(family.variants)]
    kept = {
        name: Quality(record.top1_agreement, record.mean_kld)
        for name in smaller
        if (record := family.variants[name].quality)
        and record.top1_agreement is not None
        and record.mean_kld is not None
    }
    if len(kept) == len(smaller):
        return kept
    found = measure_agreement(family, options, [case.prompt for case in cases[:N_QUALITY]], say)
    return {name: _mean_quality([one.siblings[name] for one in found]) for name in smaller if found}


def _routed_quality(
    settings: Sequence[Setting], cases: Sequence[Case], quality: Mapping[str, Quality], reference: str
) -> dict[str, Quality]:
    """Of settings that route, by their names: the mean over the siblings that would answer these cases."""
    known = {**quality, reference: Quality(1.0, 0.0)}
    found = {}
    for setting in (each for each in settings if each.route):
        siblings = [setting.resolve(case.prompt)[0] for case in cases]
        if siblings and all(name in known for name in siblings):
            found[setting.name] = Quality(
                float(np.mean([known[name].top1_agreement for name in siblings])),
                float(np.mean([known[name].mean_kld for name in siblings])),
            )
    return found


def _mean_quality(found: Sequence[Agreement]) -> Quality:
    return Quality(
        float(np.mean([one.agreement for one in found])),
        float(np.mean([one.kld for one in found])),
    )


def ablation_table(family: str, reference: str, summaries: Sequence[Summary], quality: Mapping[str, Quality]) -> Table:
    """Speed, agreement and memory of each part. Agreement on free text, and teacher-forced where it was measured."""
    rows = tuple(_row(one, reference, quality) for one in summaries)
    columns = (
        "part",
        f"x {reference} [95 %]",
        "x its own target alone",
        f"replies identical to {reference}",
        "top-1 agreement",
        "KLD (nats)",
        "acceptance",
        "memory",
    )
    notes = (
        "identical: greedy replies, id by id; after one near-tie a reply goes its own way, so top-1 agreement (the "
        "same words in front) says more about quality",
        "top-1 agreement and KLD of routed rows: the mean over the siblings that these prompts are routed to",
    )
    return Table(f"{family}: what each part brings", columns, rows, notes)


def _row(one: Summary, reference: str, quality: Mapping[str, Quality]) -> tuple[str, ...]:
    routed = one.draft == "by prompt"
    record = quality.get(one.name if routed else one.target)
    is_reference = not routed and f"{one.target} alone" == reference
    top1 = 1.0 if is_reference else record.top1_agreement if record else None
    kld = 0.0 if is_reference else record.mean_kld if record else None
    return (
        one.name,
        tables.times(one.gain),
        tables.times_short(one.speedup),
        tables.same(one.same_as_reference),
        tables.share(top1),
        tables.number(kld, 4),
        tables.share(one.acceptance),
        tables.size(one.n_memory_bytes),
    )


def _verdict(reference: str, summaries: Sequence[Summary]) -> tuple[str, ...]:
    """Who gains most with the reference's own replies, and who gains most at all."""
    known = [one for one in summaries if one.gain and one.name != reference]
    exact = [
        one
        for one in known
        if one.same_as_reference and one.same_as_reference.n_identical == one.same_as_reference.n_cases
    ]
    sentences = []
    for label, some in ((f"with the very replies of {reference}", exact), ("with other replies allowed", known)):
        best = max(some, key=lambda one: one.gain.value if one.gain else 0.0, default=None)
        if best is not None:
            sentences.append(f"Most speed {label}: '{best.name}', {tables.times(best.gain)}.")
    return tuple(sentences)
