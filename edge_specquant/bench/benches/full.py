"""`bench FAMILY`: siblings alone, draft lengths, lookup, the default; cost curves and memory by context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...gguf.family.family import Family
from ...placement.cost.sibling import Sibling
from ...runtime import EngineOptions
from ..measure.ceiling import MeasuredBandwidth
from ..measure.measurement import Case, Contestant
from ..measure.runner import Plan
from ..measure.width_costs import WidthCost
from ..reports import tables
from ..reports.result import MemoryPoint, Pictures, Result, Say
from ..reports.tables import Table
from ..runs.local_runs import alone
from ..runs.race import hold_race, race_result
from ..runs.settings import full_settings, reference_of
from ..runs.workplace import Workplace, cost_curves, open_workplace

CONTEXTS = (512, 2048, 8192, 32768)


def bench_full(
    family: Family,
    options: EngineOptions,
    cases: Sequence[Case],
    plan: Plan,
    say: Say,
    peers: Sequence[Contestant] = (),
) -> Result:
    """Measures a family. Raises FamilyError, EngineError."""
    begun_s = plan.clock()
    curves = cost_curves(family, options, say=say)
    with open_workplace(family, options, say=say) as place:
        contestants = [place.contestant(setting) for setting in full_settings(place.variants)]
        outcome = hold_race([*contestants, *peers], cases, plan.left(begun_s), say)
        memory = memory_points(place)
        place.measure_again()
        floors = floors_s(place.siblings, place.bandwidth)
        return race_result(
            "full",
            f"{family.name}: siblings and drafts",
            place,
            outcome,
            alone(reference_of(place.variants)).name,
            tables=(curve_table(curves, floors), memory_table(memory)),
            pictures=Pictures(curves=curves, floors_s=floors, memory=memory),
            cost_curves=curves,
            memory=memory,
        )


def floors_s(siblings: Mapping[str, Sibling], bandwidth: MeasuredBandwidth | None) -> dict[str, float]:
    """Seconds that reading the weights once takes: no forward can be faster."""
    if bandwidth is None:
        return {}
    return {name: sibling.n_decode_bytes / bandwidth.bytes_per_s for name, sibling in siblings.items()}


def memory_points(place: Workplace, contexts: Sequence[int] = CONTEXTS) -> tuple[MemoryPoint, ...]:
    """Each sibling alone, and the reference with its 4-bit draft, by context length (with F16 KV caches)."""
    points = []
    trained = max(sibling.card.n_ctx_train for sibling in place.siblings.values())
    for n_ctx in (n for n in contexts if n <= max(trained, contexts[0])):
        by_name = {name: place.memory_bytes(name, n_ctx) for name in place.variants}
        points += [MemoryPoint(name, n_ctx, n_bytes) for name, n_bytes in by_name.items()]
        reference = reference_of(place.variants)
        if "q4" in by_name and reference != "q4":
            points.append(MemoryPoint(f"{reference} + q4", n_ctx, by_name[reference] + by_name["q4"]))
    return tuple(points)


def curve_table(curves: Mapping[str, Sequence[WidthCost]], floors: Mapping[str, float]) -> Table:
    """Milliseconds of a forward by width, and the floor that reading the weights sets."""
    widths = list(dict.fromkeys(cost.width for curve in curves.values() for cost in curve))
    rows = []
    for name, curve in curves.items():
        known = {cost.width: cost.seconds.median * 1e3 for cost in curve}
        floor = floors[name] * 1e3 if name in floors else None
        cells = (name, tables.number(floor, 1), *(tables.number(known.get(w), 1) for w in widths))
        rows.append(cells)
    return Table("Milliseconds of one forward by width", ("sibling", "floor", *map(str, widths)), tuple(rows))


def memory_table(points: Sequence[MemoryPoint]) -> Table:
    """Bytes by configuration and context length."""
    contexts = list(dict.fromkeys(point.n_ctx for point in points))
    known = {(point.name, point.n_ctx): point.n_bytes for point in points}
    names = list(dict.fromkeys(point.name for point in points))
    rows = tuple((name, *(tables.size(known.get((name, n))) for n in contexts)) for name in names)
    return Table("Memory by context length", ("configuration", *(f"{n} tokens" for n in contexts)), rows)
