"""Tables as plain data, and what they look like in Markdown and CSV; figures as people read them.

A Table holds finished strings. Unknown is an em dash. Knows no runs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from ...units import format_bytes, format_seconds
from ..measure.statistics import Interval, Spread
from .summary import Agreement

UNKNOWN = "—"


@dataclass(frozen=True, slots=True)
class Table:
    """rows have as many cells as columns. notes: sentences below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def markdown(table: Table) -> str:
    """A pipe table with its title as a heading; notes as a list."""
    lines = [f"### {table.title}", "", _pipes(table.columns), "|---" * len(table.columns) + "|"]
    lines += [_pipes(row) for row in table.rows]
    if table.notes:
        lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table) -> str:
    """CSV with a header line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def rate(found: Spread | None) -> str:
    """'31.4 (30.9–32.0)': the median and the quartiles."""
    if found is None:
        return UNKNOWN
    if found.n < 2:
        return f"{found.median:.1f}"
    return f"{found.median:.1f} ({found.low:.1f}–{found.high:.1f})"


def times(found: Interval | None) -> str:
    """'1.24x [1.20, 1.28]'."""
    if found is None:
        return UNKNOWN
    if found.low is None or found.high is None:
        return f"{found.value:.2f}x"
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def times_short(found: Interval | None) -> str:
    """'1.24x'."""
    return UNKNOWN if found is None else f"{found.value:.2f}x"


def share(value: float | None) -> str:
    """'83 %'."""
    return UNKNOWN if value is None else f"{value:.0%}".replace("%", " %")


def percent(value: float | None) -> str:
    """'1.8 %': a share where tenths matter."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def share_interval(found: Interval | None) -> str:
    """'72.5 % [66.0, 78.1]'."""
    if found is None:
        return UNKNOWN
    if found.low is None or found.high is None:
        return f"{100 * found.value:.1f} %"
    return f"{100 * found.value:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def number(value: float | None, digits: int = 2) -> str:
    """A plain figure."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def size(n_bytes: float | None) -> str:
    """'1.18 GiB'."""
    return UNKNOWN if n_bytes is None else format_bytes(n_bytes)


def seconds(found: Spread | None) -> str:
    """The median, in the unit a person would pick."""
    return UNKNOWN if found is None else format_seconds(found.median)


def same(found: Agreement | None) -> str:
    """'14 of 14'."""
    if found is None:
        return UNKNOWN
    text = f"{found.n_identical} of {found.n_cases}"
    return text if found.n_identical == found.n_cases else f"{text} ({share(found.shared)} shared)"


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
