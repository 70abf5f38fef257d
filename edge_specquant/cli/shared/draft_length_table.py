"""How the policy table of `gamma evaluate` looks on screen, the SpecKV paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...bench.measure.statistics import Interval
from ...bench.papers.draft_length_report import GammaReport, PolicyTable

UNKNOWN = "—"
_PAPER_TOKENS = {
    "fixed-4": "3.73",
    "fixed-best, tokens": "5.81",
    "task oracle, tokens": "4.07",
    "speckv, tokens (same round)": "5.82",
}
_PAPER_IMPORTANCES = {
    "min confidence": 0.300,
    "max entropy": 0.241,
    "mean confidence": 0.218,
    "mean entropy": 0.177,
    "gamma": 0.034,
    "compression": 0.031,
}
_PAPER_DECISION_MS = 0.34


def print_report(report: GammaReport, costs_from: str) -> None:
    """Tables, importances, the time of a decision, and what the figures are worth."""
    console = Console(highlight=False)
    for table in report.tables:
        console.print(_policy_table(table))
    console.print(_importance_table(report.importances))
    explained = f"{report.explained:.0%} of the acceptance's variance from the previous draft's signals"
    for line in (
        f"the network explains {explained}, {report.explained_same_round:.0%} from the same draft's (unseen replies)",
        f"a decision takes {1e3 * report.decision_s:.3f} ms (paper: {_PAPER_DECISION_MS} ms)",
        f"rounds left out (short drafts, lookups, plain): {report.n_left_out}; costs: {costs_from}",
    ):
        console.print(Text(line), soft_wrap=True)


def _policy_table(table: PolicyTable) -> Table:
    shown = Table(
        title=Text(f"{table.title}: {table.n_rounds} rounds, {table.n_replies} replies"), title_justify="left"
    )
    shown.add_column("policy")
    for heading in ("drafted", "tokens a round", "vs fixed-4", "p", "paper", "tokens a second", "vs target alone"):
        shown.add_column(heading, justify="right")
    for row in table.rows:
        cells = (
            row.name,
            f"{row.mean_n_draft:.2f}",
            _number(row.tokens_per_round),
            _share(row.over_baseline),
            UNKNOWN if row.name == "fixed-4" else f"{row.p_value:.4f}",
            _PAPER_TOKENS.get(row.name, ""),
            _number(row.tokens_per_s),
            _share(row.over_plain),
        )
        shown.add_row(*map(Text, cells))
    return shown


def _importance_table(importances: dict[str, float]) -> Table:
    shown = Table(title=Text("what the network looks at"), title_justify="left")
    for heading in ("input", "share", "paper"):
        shown.add_column(heading, justify="left" if heading == "input" else "right")
    order: Sequence[str] = sorted(importances, key=importances.__getitem__, reverse=True)
    for name in order:
        shown.add_row(*map(Text, (name, f"{importances[name]:.1%}", f"{_PAPER_IMPORTANCES[name]:.1%}")))
    return shown


def _number(interval: Interval | None) -> str:
    if interval is None:
        return UNKNOWN
    if interval.low is None or interval.high is None:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _share(interval: Interval | None) -> str:
    if interval is None:
        return UNKNOWN
    shown = f"{100 * interval.value:+.1f} %"
    if interval.low is None or interval.high is None:
        return shown
    return f"{shown} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"
