"""`bench compare A.json B.json`: what changed between two benches, and whether it is more than chance.

Takes two documents, gives a table. Absolute speeds of two sessions also differ by what else the machine did; speeds
relative to the same file without a draft, measured in turns within each session, do not: both are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FileError
from ..measure.measurement import LONG_CLASS
from ..measure.statistics import MIN_REPEATS, Interval, difference_interval
from . import tables
from .document import make_document
from .result import Result
from .tables import Table

SIGNIFICANT = 0.05
_SAME_MACHINE = ("cpu", "gpus", "engine", "n_threads", "family", "power_mode")

Rates = dict[str, dict[str, list[float]]]
"""contestant -> case -> rates of its repeats."""


@dataclass(frozen=True, slots=True)
class Change:
    """B against A for one contestant: speed, and speed relative to its own baseline; p is two-sided."""

    name: str
    speed: Interval
    p: float | None
    relative: Interval | None
    relative_p: float | None
    replies_changed: int | None

    @property
    def verdict(self) -> str:
        """In a word or two."""
        judged, p = (self.relative, self.relative_p) if self.relative else (self.speed, self.p)
        if p is None:
            return "too few repeats to tell"
        if p >= SIGNIFICANT:
            return "no clear change"
        return "faster" if judged.value > 1 else "slower"


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Result:
    """B against A. Raises FileError when they share no contestant with runs."""
    ours, theirs = _rates(before), _rates(after)
    names = [name for name in theirs if name in ours]
    if not names:
        raise FileError("the two documents share no setting with runs; compare benches of one kind on one family")
    changes = [change for name in names if (change := _change(name, before, after, ours, theirs))]
    notes = _differences(before, after)
    only = [
        f"only in {where}: {name}"
        for where, a, b in (("A", ours, theirs), ("B", theirs, ours))
        for name in a
        if name not in b
    ]
    table = Table("B against A", _COLUMNS, tuple(_row(change) for change in changes), (*notes, *only, _READING))
    verdict = tuple(
        f"{one.name}: {one.verdict}" for one in changes if one.p is not None and one.verdict in ("faster", "slower")
    )
    document = make_document(
        "compare", changes=[{**_plain(one), "verdict": one.verdict} for one in changes], notes=notes
    )
    return Result("Comparison", document, (table,), verdict or (_no_verdict(changes),))


def _no_verdict(changes: Sequence[Change]) -> str:
    if all(change.p is None for change in changes):
        return f"Too few repeats to tell: run both benches with --repeats {MIN_REPEATS} or more."
    return "No clear change."


_COLUMNS = (
    "setting",
    "speed B / A [95 %]",
    "p",
    "relative to its target alone, B / A [95 %]",
    "p",
    "replies changed",
    "verdict",
)
_READING = (
    "the verdict follows the column that is relative to the target alone where there is one; p from a bootstrap over "
    "the repeats of each prompt"
)


def _change(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], ours: Rates, theirs: Rates
) -> Change | None:
    cases = [case for case in theirs[name] if case in ours[name]]
    found = difference_interval([ours[name][case] for case in cases], [theirs[name][case] for case in cases])
    if found is None:
        return None
    relative = None
    mine, other = _relative(before, name), _relative(after, name)
    shared = [case for case in other if case in mine]
    if shared:
        relative = difference_interval([mine[case] for case in shared], [other[case] for case in shared])
    speed, p = found
    return Change(name, speed, p, relative and relative[0], relative and relative[1], _replies(name, before, after))


def _relative(document: Mapping[str, Any], name: str) -> dict[str, list[float]]:
    """Rates over those of the target alone in the same repeat; nothing for a target alone."""
    baseline = next((one["baseline"] for one in document.get("summaries", ()) if one["name"] == name), None)
    if baseline is None or name == baseline:
        return {}
    runs = _runs(document)
    base = {(run["case"], run["repeat"]): run["tokens_per_s"] for run in runs if run["contestant"] == baseline}
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        other = base.get((run["case"], run["repeat"]))
        if run["contestant"] == name and other:
            found[run["case"]].append(run["tokens_per_s"] / other)
    return found


def _rates(document: Mapping[str, Any]) -> Rates:
    found: Rates = defaultdict(lambda: defaultdict(list))
    for run in _runs(document):
        found[run["contestant"]][run["case"]].append(run["tokens_per_s"])
    return found


def _runs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [run for run in document.get("runs", ()) if run.get("tokens_per_s") and run["class"] != LONG_CLASS]


def _replies(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """Cases whose greedy reply is another one now."""
    digests = [
        {run["case"]: run["tokens"] for run in document.get("runs", ()) if run["contestant"] == name and run["tokens"]}
        for document in (before, after)
    ]
    shared = [case for case in digests[0] if case in digests[1]]
    return sum(digests[0][case] != digests[1][case] for case in shared) if shared else None


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    a, b = before.get("environment", {}), after.get("environment", {})
    return tuple(
        f"{name} differs: {a.get(name)} and {b.get(name)}" for name in _SAME_MACHINE if a.get(name) != b.get(name)
    )


def _row(one: Change) -> tuple[str, ...]:
    def p(value: float | None) -> str:
        return tables.UNKNOWN if value is None else f"{value:.4f}" if value >= 0.0001 else "<0.0001"

    changed = tables.UNKNOWN if one.replies_changed is None else str(one.replies_changed)
    return (
        one.name,
        tables.times(one.speed),
        p(one.p),
        tables.times(one.relative),
        p(one.relative_p),
        changed,
        one.verdict,
    )


def _plain(one: Change) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}
