"""`bench bitnest FAMILY`: BitNest's tables here: speedup over F16, acceptance by workload, memory by context.

BitNest keeps one file whose high plane is the draft. A family with a nested pair (`convert --nested`) is measured as
such; besides, the pair of precisions as two files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...gguf.family.family import Family
from ...gguf.nested.nested import BASE, NESTED
from ...gguf.quantize.collect import shipped_text
from ...params import SpeculationParams
from ...runtime import EngineOptions
from ..evaluation.questions import load_questions
from ..evaluation.tasks import TASKS
from ..measure.measurement import Case
from ..measure.runner import Plan
from ..reports import tables
from ..reports.result import MemoryPoint, Pictures, Result, Say
from ..reports.summary import Summary, summarise
from ..reports.tables import Table
from ..runs.local_runs import Setting, alone
from ..runs.race import hold_race, race_result
from ..runs.settings import reference_of
from ..runs.workplace import Workplace, open_workplace
from .long_context import context_table, measure_contexts

WORKLOADS = ("Wiki", "GSM8K", "Code", "ShareGPT", "LongDoc", "PG19")
CONTEXTS = (1024, 2048, 4096, 8192, 16384)
GAMMA = 4  # the paper's own setting
_N_EACH = 2

# Table 1 and Table 8 of the paper, LLaMA-2-7B, W4A8 -> W8A8.
PAPER_SPEEDUP = {"Wiki": 1.50, "GSM8K": 1.59, "Code": 1.59, "ShareGPT": 1.61, "LongDoc": 1.60, "PG19": 1.57}
PAPER_ACCEPTANCE = {"Wiki": 92.5, "GSM8K": 95.9, "Code": 96.9, "ShareGPT": 97.8, "LongDoc": 96.7, "PG19": 94.2}
# Table 14 (Orin NX16, 2K context, PyTorch peak in GiB): method -> bytes as published.
PAPER_MEMORY = {"FP16 AR": 13.9, "W8A8 AR": 8.2, "BitNest": 7.7}
DIFFERENCES = (
    "the paper: LLaMA-2-7B on an RTX A6000, 2K prefixes, 256 generated tokens, rotated weights, 8-bit activations; "
    "here: the family and machine of the head line, weight-only GGUF types, short prefixes, greedy",
    "workloads: Wiki and LongDoc continue this package's own text (short and long), GSM8K are its word problems, Code "
    "and ShareGPT and PG19 its code, chat and story prompts",
    "q4 -> q8 is the paper's pair of precisions, as two files; q4 -> f16 is QuantSpec's",
)


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the paper's tables and the setting that stands for it here."""

    row: str
    precisions: str
    setting: Setting


def bench_bitnest(
    family: Family,
    options: EngineOptions,
    cases: Sequence[Case],
    plan: Plan,
    say: Say,
    *,
    contexts: Sequence[int] = (),
) -> Result:
    """Measures; code, chat and stories are taken from cases. contexts: where draft KV caches are compared (none: not).

    Raises FamilyError, EngineError.
    """
    reference = reference_of(family.variants)
    methods = list(_methods(family.variants, reference))
    workloads = _workloads(cases)
    with open_workplace(family, options, say=say) as place:
        contestants = [place.contestant(method.setting) for method in methods]
        outcome = hold_race(contestants, workloads, plan, say)
        summaries = {one.name: one for one in summarise(outcome, alone(reference).name)}
        memory = _memory(place, reference)
        pair = _pair(family.variants)
        points = measure_contexts(place, *pair, contexts, GAMMA, say) if contexts and pair else []
        shown = (
            _speedups(methods, summaries),
            _acceptances(methods, summaries),
            _memory_table(memory),
            *((context_table(points, *pair, GAMMA),) if points and pair else ()),
        )
        return race_result(
            "bitnest",
            f"{family.name}: BitNest's tables",
            place,
            outcome,
            alone(reference).name,
            tables=shown,
            pictures=Pictures(memory=memory),
            memory=memory,
            contexts=points,
            paper={"speedup": PAPER_SPEEDUP, "acceptance": PAPER_ACCEPTANCE, "memory_gib": PAPER_MEMORY},
            differences=DIFFERENCES,
        )


def _methods(variants: Mapping[str, object], reference: str) -> Iterator[Method]:
    yield Method("FP16 AR", "W16", alone(reference))
    if "q8" in variants and reference != "q8":
        yield Method("W8 AR", "W8", alone("q8"))
    if "q4" not in variants:
        return
    draft = SpeculationParams(draft="q4", n_draft=GAMMA, controller="fixed")
    if NESTED in variants:
        nested = SpeculationParams(draft=BASE, n_draft=GAMMA, controller="fixed")
        yield Method("BitNest's target AR, nested here", "W4+4", alone(NESTED))
        yield Method("BitNest, nested here", "W4 -> W4+4", Setting(f"{BASE} -> {NESTED}", NESTED, nested))
    if "q8" in variants:
        yield Method("BitNest's pair, two files", "W4 -> W8", Setting("q4 -> q8", "q8", draft))
    if reference not in ("q4", "q8"):
        yield Method("QuantSpec's pair", "W4 -> W16", Setting(f"q4 -> {reference}", reference, draft))
        adaptive = SpeculationParams(draft="lookup+q4")
        yield Method("this program's default", "adaptive -> W16", Setting(f"{reference} default", reference, adaptive))


def _pair(variants: Mapping[str, object]) -> tuple[str, str] | None:
    """(target, draft) of the paper's precisions: nested where there is such a pair, else two files."""
    if NESTED in variants and BASE in variants:
        return NESTED, BASE
    return ("q8", "q4") if {"q8", "q4"} <= set(variants) else None


def _workloads(cases: Sequence[Case]) -> list[Case]:
    """Cases under the paper's names; reply lengths as given for the chat prompts."""
    n_tokens = max((case.max_tokens for case in cases), default=128)
    text = shipped_text("heldout")
    found = [
        Case("wiki", "Wiki", f"Go on with this text:\n\n{text[:600]}", n_tokens),
        Case("longdoc", "LongDoc", f"Go on with this text:\n\n{text[:4000]}", n_tokens),
    ]
    task = TASKS["gsm8k"]
    problems = load_questions("gsm8k", limit=_N_EACH)
    found += [Case(one.id, "GSM8K", task.prompt(one), min(n_tokens, task.max_tokens)) for one in problems]
    for workload, classes in (
        ("Code", ("new code",)),
        ("ShareGPT", ("explanation", "short fact")),
        ("PG19", ("story",)),
    ):
        chosen = [case for case in cases if case.prompt_class in classes][:_N_EACH]
        found += [replace(case, prompt_class=workload) for case in chosen]
    return found


def _speedups(methods: Sequence[Method], summaries: Mapping[str, Summary]) -> Table:
    rows = []
    for method in methods:
        one = summaries.get(method.setting.name)
        cells = [one.by_class[w].gain if one and w in one.by_class else None for w in WORKLOADS]
        rows.append((method.row, method.precisions, *(tables.times_short(each) for each in cells)))
    rows.append(("paper: BitNest", "W4A8 -> W8A8", *(f"{PAPER_SPEEDUP[w]:.2f}x" for w in WORKLOADS)))
    columns = ("Method", "Draft -> Target", *WORKLOADS)
    return Table("Table 1: decoding speedup over F16 alone", columns, tuple(rows), DIFFERENCES)


def _acceptances(methods: Sequence[Method], summaries: Mapping[str, Summary]) -> Table:
    rows = []
    for method in methods:
        one = summaries.get(method.setting.name)
        if one is None or method.setting.draft == "none":
            continue
        n_draft = method.setting.speculation.n_draft
        found = [one.by_class[w].acceptance if w in one.by_class else None for w in WORKLOADS]
        known = [value for value in found if value is not None]
        mean = sum(known) / len(known) if known else None
        cells = (*(tables.share(value) for value in found), tables.share(mean))
        rows.append((method.row, "adaptive" if n_draft is None else str(n_draft), *cells))
    paper = (*(f"{PAPER_ACCEPTANCE[w]} %" for w in WORKLOADS), "95.7 %")
    rows.append(("paper: BitNest", str(GAMMA), *paper))
    return Table("Table 8: acceptance by workload", ("Method", "γ", *WORKLOADS, "Avg."), tuple(rows))


def _memory(place: Workplace, reference: str) -> tuple[MemoryPoint, ...]:
    """Weights, KV cache and buffers by context; F16 and 8-bit KV caches."""
    points: list[MemoryPoint] = []
    for n_ctx in CONTEXTS:
        points.append(MemoryPoint(f"{reference} alone", n_ctx, place.memory_bytes(reference, n_ctx)))
        if "q8" not in place.variants:
            continue
        eight = place.memory_bytes("q8", n_ctx)
        eight_kv8 = place.memory_bytes("q8", n_ctx, type_k="q8_0", type_v="q8_0")
        points.append(MemoryPoint("q8 alone", n_ctx, eight))
        if "q4" in place.variants:
            points.append(MemoryPoint("q4 -> q8, two files", n_ctx, eight + place.memory_bytes("q4", n_ctx)))
        if NESTED in place.variants:
            second = place.memory_bytes(BASE, n_ctx) - place.siblings[BASE].n_bytes  # the draft's own cells and buffers
            both = place.memory_bytes(NESTED, n_ctx) + second
            points.append(MemoryPoint("nested with its draft inside", n_ctx, both))
        points.append(MemoryPoint("q8 with an 8-bit KV cache (a nested draft needs no more weights)", n_ctx, eight_kv8))
    return tuple(points)


def _memory_table(points: Sequence[MemoryPoint]) -> Table:
    known = {(point.name, point.n_ctx): point.n_bytes for point in points}
    names = dict.fromkeys(point.name for point in points)
    rows = [(name, *(tables.size(known[name, n]) for n in CONTEXTS)) for name in names]
    blank = tables.UNKNOWN
    for name, gib in PAPER_MEMORY.items():
        rows.append((f"paper: {name}, Orin NX16", *(f"{gib} GiB" if n == 2048 else blank for n in CONTEXTS)))
    columns = ("Method", *(f"{n // 1024}K" for n in CONTEXTS))
    return Table("Tables 3 and 14: memory by context length", columns, tuple(rows))
