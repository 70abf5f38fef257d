"""`bench speculation FAMILY`: target alone, fixed 3, the controllers, peers; five prompt classes and a long prompt.

Gives the table, what --strict costs, where the time goes, and which of the goals (speed by class, never slower, time to
first token) were reached.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...gguf.family.family import Family
from ...gguf.family.guests import guest
from ...native.opening import open_model
from ...runtime import EngineOptions
from ..measure.cases import EDIT_CLASS, long_case
from ..measure.measurement import LONG_CLASS, Case, Contestant
from ..measure.runner import Plan
from ..reports.race_tables import chat_mean, first_token_table, profile_table
from ..reports.result import Result, Say
from ..reports.summary import Summary, summarise
from ..reports.tables import Table
from ..runs.local_runs import alone
from ..runs.race import hold_race, race_result
from ..runs.settings import by_precision, speculation_settings
from ..runs.workplace import engine_alone, open_workplace, without_kernel
from .strict_cost import strict, strict_rows, strict_table

CONTROLLERS = ("goodput", "speckv")
NEVER_BELOW = 0.97
TTFT_AT_MOST = 1.05


@dataclass(frozen=True, slots=True)
class Goal:
    """What the default must reach: mean of the chat classes, and editing, times the target alone."""

    chat: float
    edit: float


GOALS: Mapping[str, Goal] = {"f16": Goal(1.40, 2.6), "q8": Goal(1.05, 2.2), "q4": Goal(1.25, 2.8)}


def bench_speculation(
    family: Family,
    options: EngineOptions,
    cases: Sequence[Case],
    plan: Plan,
    say: Say,
    *,
    targets: Sequence[str] = (),
    controllers: Sequence[str] = CONTROLLERS,
    guests: Sequence[str] = (),
    n_long: int = 1500,
    peers: Sequence[Contestant] = (),
) -> Result:
    """Measures speculation on every target. n_long 0 leaves the long prompt out. guests: drafts from elsewhere.

    Raises FamilyError, EngineError."""
    wanted = [family.variant(name).name for name in targets] or by_precision(family.variants)
    named = [guest(name).name for name in guests]
    if n_long:
        cases = [*cases, _long_case(family, wanted[0], n_long)]
    with open_workplace(family, options, say=say) as place, without_kernel(place, wanted) as stock:
        of = functools.partial(speculation_settings, controllers=controllers, guests=named)
        settings = [setting for name in wanted for setting in of(name, place.variants)]
        default = {name for target in wanted for name in (alone(target).name, f"{target} {CONTROLLERS[0]}")}
        exact = [strict(setting) for setting in settings if setting.name in default]
        contestants = [*(place.contestant(setting) for setting in [*settings, *exact]), *stock, *peers]
        outcome = hold_race(contestants, cases, plan, say)
        reference = alone(wanted[0]).name
        summaries = summarise(outcome, reference)
        goals = [row for name in wanted for row in goal_rows(name, summaries)]
        strictness = strict_rows(outcome)
        shown = (first_token_table(summaries), strict_table(strictness), profile_table(summaries), goals_table(goals))
        return race_result(
            "speculation",
            f"{family.name}: speculation",
            place,
            outcome,
            reference,
            tables=tuple(table for table in shown if table),
            verdict=(*(f"{goal.name}: {goal.sentence}" for goal in goals), *over_engine(wanted, summaries)),
            goals=goals,
            strict=strictness,
        )


@dataclass(frozen=True, slots=True)
class GoalRow:
    """One goal and what was reached; None where it was not measured."""

    name: str
    what: str
    goal: str
    found: float | None
    reached: bool | None

    @property
    def sentence(self) -> str:
        """For people."""
        found = "not measured" if self.found is None else f"{self.found:.2f}x"
        end = {True: "reached", False: "not reached", None: ""}[self.reached]
        return f"{self.what}: {found} (goal {self.goal}){f', {end}' if end else ''}"


def goal_rows(target: str, summaries: Sequence[Summary]) -> list[GoalRow]:
    """The goals of one target's default controller."""
    name = f"{target} {CONTROLLERS[0]}"
    summary = next((one for one in summaries if one.name == name), None)
    if summary is None:
        return []
    rows = []
    goal = GOALS.get(target)
    if goal:
        edit = summary.by_class.get(EDIT_CLASS)
        rows.append(_at_least(name, "mean of the chat classes", goal.chat, chat_mean(summary)))
        rows.append(_at_least(name, "editing", goal.edit, edit.speedup.value if edit and edit.speedup else None))
    speedups = {c: found.speedup.value for c, found in summary.by_class.items() if found.speedup and c != LONG_CLASS}
    worst = min(speedups, key=lambda c: speedups[c], default=None)
    if worst is not None:
        rows.append(_at_least(name, f"slowest class ({worst})", NEVER_BELOW, speedups[worst]))
    long = summary.by_class.get(LONG_CLASS)
    if long and long.ttft_ratio is not None:
        value = long.ttft_ratio.value
        rows.append(GoalRow(name, "time to first token", f"at most {TTFT_AT_MOST}x", value, value <= TTFT_AT_MOST))
    return rows


def over_engine(targets: Sequence[str], summaries: Sequence[Summary]) -> list[str]:
    """A sentence for each target: the default against the target alone by the engine's own products, by class."""
    by_name = {one.name: one for one in summaries}
    sentences = []
    for target in targets:
        ours, engines = by_name.get(f"{target} {CONTROLLERS[0]}"), by_name.get(engine_alone(target))
        if ours is None or engines is None:
            continue
        found = []
        for name, figures in ours.by_class.items():
            theirs = engines.by_class.get(name)
            if figures.speedup and theirs and theirs.speedup and name != LONG_CLASS:
                found.append(f"{name} {figures.speedup.value / theirs.speedup.value:.2f}x")
        sentences.append(f"{ours.name} against {engines.name}: {', '.join(found)}")
    return sentences


def goals_table(rows: Sequence[GoalRow]) -> Table | None:
    """Goals beside what was found; None for no goals."""
    if not rows:
        return None
    said = {True: "yes", False: "no", None: "—"}
    cells = tuple(
        (row.name, row.what, row.goal, "—" if row.found is None else f"{row.found:.2f}x", said[row.reached])
        for row in rows
    )
    return Table("Goals", ("setting", "what", "goal", "found", "reached"), cells)


def _at_least(name: str, what: str, goal: float, found: float | None) -> GoalRow:
    return GoalRow(name, what, f"at least {goal}x", found, None if found is None else found >= goal)


def _long_case(family: Family, name: str, n_tokens: int) -> Case:
    with open_model(family.path(name), vocab_only=True) as model:
        return long_case(model.vocab, n_tokens)
