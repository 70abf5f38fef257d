"""How a route, a fit and a traffic report look on screen. Others' text goes through `rich.text.Text`, never markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...routing.learn.fit import FitResult
from ...routing.learn.report import Report
from ...routing.learn.strategies import Strategy
from ...routing.policy.policy import Policy
from ...routing.policy.score import contributions
from ...routing.policy.signals import SIGNALS
from ...routing.router import Route
from ...units import format_rate, format_seconds

UNKNOWN = "—"


def print_route(route: Route, policy: Policy, *, explain: bool, counted: bool) -> None:
    """One line, or everything the decision was made of."""
    console = Console(highlight=False)
    helper = "" if route.draft == "none" else f", drafts by {route.draft} ({route.controller})"
    console.print(Text(f"{route.tier}: {route.target} answers{helper}"), soft_wrap=True)
    if not explain:
        return
    console.print(_feature_table(route, policy, counted))
    for line in (*route.reasons, f"nearest flip: {route.nearest_flip}"):
        console.print(Text(line), soft_wrap=True)


def print_fit(result: FitResult, n_prompts: int, path: str | None) -> None:
    """The strategies on unseen prompts, the verdict, and where the policy went."""
    console = Console(highlight=False)
    console.print(
        _strategy_table(f"{n_prompts} prompts, each routed by a fit that never saw it", result.rows, result.siblings)
    )
    for line in (result.verdict, *result.notes):
        console.print(Text(line), soft_wrap=True)
    if path:
        console.print(Text(f"policy written: {path}"), soft_wrap=True)


def print_report(report: Report) -> None:
    """Tiers, the cost of deciding, and the rivals."""
    console = Console(highlight=False)
    console.print(_tier_table(report))
    decision = report.decision
    if decision:
        share = UNKNOWN if decision.share_of_ttft is None else f"{100 * decision.share_of_ttft:.1f} %"
        took = f"deciding took {format_seconds(decision.decide_s)} (median; spaCy judged {decision.by_spacy:.0%})"
        console.print(Text(f"{took}; for prompts over 50 tokens that is {share} of the time to the first token"))
    if report.rivals:
        title = f"what each router would have cost ({report.n_measured} of {report.n} prompts measured themselves)"
        console.print(_strategy_table(title, report.rivals, report.siblings))
    console.print(Text(report.note), soft_wrap=True)


def _feature_table(route: Route, policy: Policy, counted: bool) -> Table:
    features = route.features
    added = contributions(features, policy)
    table = Table(title=Text(f"policy {policy.name}: score {route.score:.3f}"), title_justify="left")
    for heading in ("feature", "value", "signal", "adds"):
        table.add_column(heading, justify="left" if heading == "feature" else "right")
    for name, signal in SIGNALS.items():
        value = getattr(features, signal.field)
        shown = UNKNOWN if value is None else f"{value}" if signal.whole else f"{value:.2f}"
        about = "about " if name == "length" and not counted else ""
        cells = (
            signal.field.replace("_", " "),
            about + shown,
            f"{signal.value(features):.2f}",
            _added(added.get(name)),
        )
        table.add_row(*map(Text, cells))
    table.add_row("language", Text(features.language), "", _added(added.get("foreign")))
    table.add_row("kind", Text(features.kind + (", sampled" if features.sampled else "")), "", "")
    table.add_row("syntax judged by", Text(features.estimator), "", "")
    return table


def _added(amount: float | None) -> str:
    return "" if amount is None else f"{amount:+.3f}"


def _strategy_table(title: str, rows: Sequence[Strategy], siblings: Sequence[str]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    table.add_column("router")
    for heading in ("time a prompt", "agreement", "saving over a coin", *siblings):
        table.add_column(Text(heading), justify="right")
    for row in rows:
        cells = [
            row.name,
            format_seconds(row.seconds),
            f"{row.agreement:.3f}",
            f"{round(100 * row.saving, 1) + 0.0:+.1f} %",
        ]
        table.add_row(*map(Text, cells + [f"{100 * share:.0f} %" for share in row.shares]))
    return table


def _tier_table(report: Report) -> Table:
    table = Table(title=Text(f"{report.n} replies"), title_justify="left")
    for heading in ("tier", "replies", "share", "time a reply", "decode", "accepted"):
        table.add_column(heading, justify="left" if heading == "tier" else "right")
    for use in report.tiers:
        accepted = UNKNOWN if use.acceptance_rate is None else f"{100 * use.acceptance_rate:.0f} %"
        total = format_seconds(use.total_s) if use.n else UNKNOWN
        cells = (
            use.tier,
            str(use.n),
            f"{100 * use.share:.0f} %",
            total,
            format_rate(use.decode_tokens_per_s),
            accepted,
        )
        table.add_row(*map(Text, cells))
    return table
