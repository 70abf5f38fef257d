"""SpecKV's policy table (arXiv 2605.02888) from replays, with the paper's figures beside, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..measure.statistics import Interval
from ..reports import tables
from ..reports.race_tables import CLEAR_GAIN
from ..reports.tables import Table

DEFAULT = "Fixed-4 (default)"
PAPER = {
    DEFAULT: "3.73 [3.67, 3.79]",
    "Fixed-best (per compression)": "5.81 (+55.8 %)",
    "Task-oracle (requires task label)": "4.07 (+9.1 %)",
    "SpecKV": "5.82 [5.69, 5.96] (+56.0 %)",
}
DIFFERENCES = (
    "the paper: Llama 3.2 1B drafts for 3B on an RTX 3090, targets in FP16, INT8, NF4, simulated on recorded steps; "
    "here: a 4-bit sibling drafts for its own F16 and 8-bit targets, replayed exactly on their greedy replies",
    "SpecKV decides here after two draft tokens, by their signals: the paper's features need the draft whose length "
    "they are to decide",
    "networks are trained without the prompt they are judged on; the paper does not say so of its own",
    "tokens a step hardly ever fall when more is drafted, so Fixed-8 is hard to beat there; tokens per second is by "
    "cost curves measured here, drafts and padding included",
)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy on all replies."""

    name: str
    tokens_per_step: Interval | None
    tokens_per_s: Interval | None
    speedup: Interval | None
    p: float | None


def policy_table(rows: Sequence[PolicyRow], notes: tuple[str, ...]) -> Table:
    """One row a policy; intervals over replies."""
    base = next(row.tokens_per_step for row in rows if row.name == DEFAULT)
    columns = (
        "Policy",
        "Expected Tokens/Step [95 %]",
        "vs Fixed-4",
        "p",
        "tokens/s [95 %]",
        "x no draft [95 %]",
        "paper: Tokens/Step",
    )
    cells = []
    for row in rows:
        steps = row.tokens_per_step
        change = steps.value / base.value - 1 if steps and base else None
        p = tables.UNKNOWN if row.p is None or row.name == DEFAULT else f"{row.p:.4f}"
        relative = "baseline" if row.name == DEFAULT else tables.UNKNOWN if change is None else f"{100 * change:+.1f} %"
        cells.append(
            (
                row.name,
                _mean(steps),
                relative,
                p,
                _mean(row.tokens_per_s, 1),
                tables.times(row.speedup),
                PAPER.get(row.name, "—"),
            )
        )
    return Table("Table 1: policies of draft length", columns, tuple(cells), notes)


def verdict(rows: Sequence[PolicyRow]) -> tuple[str, ...]:
    """Which policy pays, and which lose."""
    known = [row for row in rows if row.speedup and not row.name.startswith(("Oracle", "no draft"))]
    best = max(known, key=lambda row: row.speedup.value if row.speedup else 0.0)
    pays = best.speedup is not None and best.speedup.value >= CLEAR_GAIN
    sentences = (
        [f"By tokens per second, '{best.name}' is best: {tables.times(best.speedup)} of no draft at all."]
        if pays
        else ["By tokens per second, no policy of draft length beats no draft at all here."]
    )
    losing = [row.name for row in known if row.speedup and row.speedup.value < 0.99]
    if losing:
        sentences.append(f"Slower than no draft on this machine: {', '.join(losing)}.")
    return tuple(sentences)


def _mean(found: Interval | None, digits: int = 2) -> str:
    if found is None:
        return tables.UNKNOWN
    if found.low is None or found.high is None:
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"
