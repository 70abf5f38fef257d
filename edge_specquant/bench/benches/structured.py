"""`bench structured FAMILY`: what a reply's form costs, and what its forced tokens give back.

Every case by every target: without a form, with it and no draft, then with the drafters one after the other and all
together, in turns. Beside it what a mask and a compilation take. Knows no sampling and no grammar.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.constraint import Constraints
from ...engine.structured.form import form_of
from ...gguf.family.family import Family
from ...native.opening import open_model
from ...native.protocol import Vocab
from ...params import SamplingParams, SpeculationParams
from ...request import Request
from ...runtime import EngineOptions, Runtime
from ..measure.environment import environment_line
from ..measure.statistics import Interval, ratio_interval, spread
from ..reports import tables
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..reports.tables import Table
from ..runs.workplace import open_workplace
from .structured_cases import CASES, RECORDS, StructuredCase

FREE, ALONE, ALL = "no form", "form alone", "all drafters"
TARGETS = ("f16", "q8", "q4")
_GREEDY = SamplingParams(temperature=0)
_NO_DRAFT = SpeculationParams(draft="none", n_draft=0)


@dataclass(frozen=True, slots=True)
class StructuredRun:
    """One reply. tokens_per_s: of decoding, the first token left out. n_forced: tokens that the form proposed."""

    case: str
    target: str
    setting: str
    repeat: int
    n_tokens: int
    n_forced: int
    n_rounds: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class FormCost:
    """What one case's form takes: seconds to compile, seconds a mask (median and longest over a reply)."""

    case: str
    compile_s: float
    mask_s: float
    longest_mask_s: float


def bench_structured(
    family: Family,
    options: EngineOptions,
    say: Say,
    *,
    targets: Sequence[str] = (),
    repeats: int = 5,
    max_tokens: int = 160,
) -> Result:
    """Raises what replies raise."""
    chosen = [name for name in targets or TARGETS if name in family.variants] or [next(iter(family.variants))]
    runs: list[StructuredRun] = []
    replies: dict[str, tuple[int, ...]] = {}
    with open_workplace(family, options, say=say, with_ceiling=False) as place:
        environment, runtime = place.environment, place.runtime
        for target in chosen:
            for repeat in range(-1, repeats):  # the first round loads, and is thrown away
                for case in CASES:
                    for setting, speculation in _settings(family, target):
                        say(f"{target}, {case.name}, {setting}, {repeat + 1} of {repeats}")
                        run, ids = _measure(runtime, case, target, setting, speculation, repeat, max_tokens)
                        runs += [run] if repeat >= 0 else []
                        if setting == ALONE:
                            replies[case.name] = ids
    costs = _form_costs(family, replies)
    found = (_speed_table(runs, chosen), _cost_table(costs, runs))
    document = make_document("structured", environment=environment, runs=runs, forms=costs)
    where = environment_line(environment)
    return Result(f"{family.name}: structured replies", document, found, (*_verdict(runs, chosen), where))


def _settings(family: Family, target: str) -> list[tuple[str, SpeculationParams | None]]:
    """By name; None is a reply without a form. What the form forces is drafted beside every other drafter."""
    sibling = "q4" if "q4" in family.variants and target != "q4" else None
    made: list[tuple[str, SpeculationParams | None]] = [(FREE, None), (ALONE, _NO_DRAFT)]
    made += [(f"form + {name}", SpeculationParams(draft=name)) for name in ("grammar", "lookup", sibling) if name]
    return [*made, (ALL, SpeculationParams(draft=f"lookup+{sibling}" if sibling else "lookup"))]


def _measure(
    runtime: Runtime,
    case: StructuredCase,
    target: str,
    setting: str,
    speculation: SpeculationParams | None,
    repeat: int,
    max_tokens: int,
) -> tuple[StructuredRun, tuple[int, ...]]:
    fields: dict[str, Any] = {} if speculation is None else dict(case.fields)
    request = Request(
        prompt=case.prompt,
        target=target,
        max_tokens=max_tokens,
        sampling=_GREEDY,
        speculation=speculation or _NO_DRAFT,
        **fields,
    )
    ids: list[int] = []
    n_forced = n_rounds = 0
    rate = float("nan")
    for event in runtime.generate(request):
        if event.token_id is not None:
            ids.append(event.token_id)
            n_forced += event.origin == "grammar"
        if event.stats is not None:
            n_rounds = event.stats.n_rounds
            rate = (len(ids) - 1) / event.stats.decode_s if len(ids) > 1 and event.stats.decode_s else rate
    return StructuredRun(case.name, target, setting, repeat, len(ids), n_forced, n_rounds, rate), tuple(ids)


def _form_costs(family: Family, replies: dict[str, tuple[int, ...]]) -> list[FormCost]:
    smallest = min(family.variants.values(), key=lambda variant: variant.n_bytes)
    model = open_model(family.path(smallest.name), vocab_only=True)
    try:
        return [_form_cost(case, replies[case.name], model.vocab) for case in CASES]
    finally:
        model.close()


def _form_cost(case: StructuredCase, ids: Sequence[int], vocab: Vocab) -> FormCost:
    form = form_of(Request(prompt=case.prompt, **case.fields))
    assert form is not None
    constraints = Constraints()
    constraints.constraint(form, vocab)  # the family's tokenizer is made once
    constraints.forget()
    compile_s, constraint = _timed(lambda: constraints.constraint(form, vocab))
    row = np.zeros(vocab.n_tokens, dtype=np.float32)
    masks = []
    for token in ids:
        mask_s, _ = _timed(lambda: constraint.mask(row))
        masks.append(mask_s)
        constraint.accept(token)
    return FormCost(case.name, compile_s, float(np.median(masks)), max(masks))


def _timed(act: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    made = act()
    return time.perf_counter() - begun, made


def _gain(runs: Sequence[StructuredRun], target: str, cases: Sequence[str], setting: str, base: str) -> Interval | None:
    """Tokens/s of a setting over those of another, repeat by repeat."""
    rates = {(r.case, r.setting, r.repeat): r.tokens_per_s for r in runs if r.target == target}
    ratios = [
        [rate / rates[case, base, n] for (c, s, n), rate in rates.items() if (c, s) == (case, setting)]
        for case in cases
    ]
    return ratio_interval([[ratio for ratio in found if np.isfinite(ratio) and ratio > 0] for found in ratios])


def _speed_table(runs: Sequence[StructuredRun], targets: Sequence[str]) -> Table:
    """A row a target and case: the rate of the form alone, and all others over it."""
    rows = []
    for target in targets:
        settings = list(dict.fromkeys(run.setting for run in runs if run.target == target))
        for case in (case.name for case in CASES):
            alone = [r.tokens_per_s for r in runs if (r.target, r.case, r.setting) == (target, case, ALONE)]
            gains = {name: tables.times_short(_gain(runs, target, [case], name, ALONE)) for name in settings}
            sibling = next((name for name in settings if name.startswith("form + q")), "")
            picked = (FREE, "form + grammar", "form + lookup", sibling, ALL)
            rows.append(
                (target, case, tables.rate(spread(alone)), *(gains.get(name, tables.UNKNOWN) for name in picked))
            )
    columns = ("target", "reply", "form alone, tokens/s", FREE, "+ grammar", "+ lookup", "+ q4", ALL)
    notes = ("all but the third column: times the form alone; forced tokens are drafted beside every drafter",)
    return Table("Replies with a form", columns, tuple(rows), notes)


def _cost_table(costs: Sequence[FormCost], runs: Sequence[StructuredRun]) -> Table:
    rows = []
    for cost in costs:
        mine = [run for run in runs if run.case == cost.case and run.setting == "form + grammar"]
        forced = sum(run.n_forced for run in mine) / max(1, sum(run.n_tokens for run in mine))
        micros = (f"{1e6 * cost.mask_s:.0f}", f"{1e6 * cost.longest_mask_s:.0f}")
        rows.append((cost.case, tables.share(forced), *micros, f"{1e3 * cost.compile_s:.1f}"))
    columns = ("reply", "forced tokens", "a mask, us", "longest, us", "to compile, ms")
    return Table("What a form costs", columns, tuple(rows))


def _verdict(runs: Sequence[StructuredRun], targets: Sequence[str]) -> list[str]:
    names = [case.name for case in CASES]
    return [
        f"{target}: the form alone {tables.times(_gain(runs, target, names, ALONE, FREE))} of no form; all drafters "
        f"{tables.times(_gain(runs, target, RECORDS, ALL, ALONE))} of the form alone on the record schemas"
        for target in targets
    ]
