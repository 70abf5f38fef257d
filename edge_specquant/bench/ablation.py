"""`bench ablation FAMILY`: each part alone, then together, with speed, agreement with the reference, and memory.

The table that SpecQuant (arXiv 2609.21704) lacks: how much comes from quantization, speculation, the controller,
lookup, the cascade, transplanted caches, width padding, routing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..gguf.family import Family
from ..gguf.manifest import QualityRecord
from ..runtime import EngineOptions
from . import tables
from .local_runs import alone
from .measurement import Case, Contestant
from .race import hold_race, race_result
from .result import Result, Say
from .runner import Plan
from .settings import ablation_settings, reference_of, router_of
from .summary import Summary, summarise
from .tables import Table
from .workplace import open_workplace

ROUTING_POLICY = "fast"


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
    with open_workplace(family, options, say=say) as place:
        contestants = [*(place.contestant(setting) for setting in settings), *peers]
        outcome = hold_race(contestants, cases, plan, say)
        summaries = summarise(outcome, reference)
        quality = {name: variant.quality for name, variant in family.variants.items()}
        table = ablation_table(family.name, reference, summaries, quality)
        return race_result(
            "ablation",
            f"{family.name}: ablation",
            place,
            outcome,
            reference,
            tables=(table,),
            verdict=_verdict(reference, summaries),
            quality=quality,
            policy=policy,
        )


def ablation_table(
    family: str, reference: str, summaries: Sequence[Summary], quality: Mapping[str, QualityRecord | None]
) -> Table:
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
        "identical: greedy replies, id by id; after one near-tie a reply goes its own way, so top-1 agreement (on "
        "held-out text, the same words in front) says more about quality",
    )
    return Table(f"{family}: what each part brings", columns, rows, notes)


def _row(one: Summary, reference: str, quality: Mapping[str, QualityRecord | None]) -> tuple[str, ...]:
    routed = one.draft == "by prompt"
    record = None if routed else quality.get(one.target)
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
