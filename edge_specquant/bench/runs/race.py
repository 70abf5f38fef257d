"""From contestants and cases to a Result: runs them, summarises, adds ceilings, makes the document and the tables.

The common frame of `bench`, `bench speculation` and `bench ablation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..measure.environment import environment_line
from ..measure.measurement import Case, Contestant
from ..measure.runner import Outcome, Plan, run_all
from ..reports.document import make_document
from ..reports.race_tables import classes_table, contestants_table, what_pays
from ..reports.result import Pictures, Result, Say
from ..reports.summary import Summary, summarise
from ..reports.tables import Table
from .workplace import Workplace


def hold_race(contestants: Sequence[Contestant], cases: Sequence[Case], plan: Plan, say: Say) -> Outcome:
    """Runs everybody and tells how far it is."""
    return run_all(
        contestants, cases, plan, lambda done, total, what: say(f"run {done + 1} of {total} or more: {what}")
    )


def race_result(
    kind: str,
    title: str,
    place: Workplace,
    outcome: Outcome,
    reference: str,
    *,
    tables: tuple[Table, ...] = (),
    verdict: tuple[str, ...] = (),
    pictures: Pictures | None = None,
    **extra: object,
) -> Result:
    """The Result of a race; extra goes into the document."""
    place.measure_again()
    summaries = summarise(outcome, reference)
    ceilings = {one.name: place.ceiling(one.n_bytes_per_token) for one in summaries}
    notes = (*place.notes, *outcome.notes)
    main = replace(
        contestants_table(title, summaries, ceilings, reference),
        notes=(environment_line(place.environment), _repeats(outcome), *_ceiling_note(place), *notes),
    )
    document = make_document(
        kind,
        environment=place.environment,
        reference=reference,
        n_repeats=outcome.n_repeats,
        bandwidth=place.bandwidth,
        summaries=[_as_json(one, ceilings[one.name]) for one in summaries],
        verdict=[*verdict, *what_pays(summaries)],
        notes=notes,
        runs=[run.as_dict() for run in outcome.runs],
        **extra,
    )
    by_class = classes_table("Speed by prompt class, times the same file without a draft", summaries)
    drawn = replace(pictures or Pictures(), summaries=summaries, ceilings=ceilings)
    return Result(title, document, (main, by_class, *tables), (*verdict, *what_pays(summaries)), drawn)


def _as_json(one: Summary, ceiling: float | None) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__slots__} | {"ceiling_tokens_per_s": ceiling}


def _repeats(outcome: Outcome) -> str:
    cases = len({run.case for run in outcome.runs})
    return f"{outcome.n_repeats} repeats of {cases} prompts, greedy, interleaved; cold caches before every run"


def _ceiling_note(place: Workplace) -> tuple[str, ...]:
    if place.bandwidth is None:
        return ("no ceiling: the bandwidth was not measured (a GPU holds the weights, or it was switched off)",)
    gb = place.bandwidth.bytes_per_s / 1e9
    return (
        f"ceiling: weights read for each token at the {gb:.1f} GB/s that {place.bandwidth.n_threads} threads read here",
    )
