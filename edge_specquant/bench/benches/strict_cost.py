"""What `--strict` costs: each target with a draft and without, strict against not, in one race.

Takes the runs of a race, gives a table. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..measure.measurement import LONG_CLASS, STRICT, Contestant, Run
from ..measure.runner import Outcome
from ..measure.statistics import Interval
from ..reports import tables
from ..reports.summary import Agreement, agreement, ratios
from ..reports.tables import Table
from ..runs.local_runs import Setting

"""How the names of strict settings end."""


@dataclass(frozen=True, slots=True)
class StrictRow:
    """One strict setting. speed: its tokens/s over those of the same setting without --strict; first_token likewise, on
    the long prompt; same: its replies against the target's alone, both strict.
    """

    name: str
    speed: Interval | None
    first_token: Interval | None
    same: Agreement | None


def strict(setting: Setting) -> Setting:
    """The same setting, strict."""
    return replace(setting, name=f"{setting.name}{STRICT}", speculation=replace(setting.speculation, strict=True))


def strict_rows(outcome: Outcome) -> list[StrictRow]:
    """Of the strict settings whose twins without --strict ran too, in the order of the race."""
    by_name: dict[str, list[Run]] = {}
    for run in outcome.runs:
        by_name.setdefault(run.contestant, []).append(run)
    return [
        _row(by_name, one)
        for one in outcome.contestants
        if one.name.endswith(STRICT) and {one.name, one.name.removesuffix(STRICT)} <= by_name.keys()
    ]


def strict_table(rows: Sequence[StrictRow]) -> Table | None:
    """None for no rows."""
    cells = tuple(
        (
            row.name,
            tables.times(row.speed),
            tables.times(row.first_token),
            tables.same(row.same),
        )
        for row in rows
    )
    columns = ("setting", "tokens/s, x without --strict [95 %]", "first token, x", "same replies as strict alone")
    return Table("What --strict costs", columns, cells) if rows else None


def _row(by_name: Mapping[str, Sequence[Run]], one: Contestant) -> StrictRow:
    base = by_name.get(f"{one.baseline}{STRICT}", [])
    chat, long = _split(by_name[one.name])
    chat_plain, long_plain = _split(by_name[one.name.removesuffix(STRICT)])
    return StrictRow(
        one.name,
        ratios(chat, chat_plain, lambda sample: sample.tokens_per_s),
        ratios(long or chat, long_plain or chat_plain, lambda sample: sample.ttft_s),
        agreement(chat, base),
    )


def _split(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """(ordinary runs, runs of the long prompt)."""
    long = [run for run in runs if run.prompt_class == LONG_CLASS]
    return [run for run in runs if run.prompt_class != LONG_CLASS], long
