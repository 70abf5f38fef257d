"""How a bench shows itself: progress on stderr, tables and verdict on stdout, one JSON document as the last line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ..bench.document import one_line, write_document
from ..bench.report import write_report
from ..bench.result import Result
from ..bench.tables import Table, markdown

_CLEAR = "\x1b[K"
_LINE_EVERY_S = 10.0


def progress_line(quiet: bool = False) -> Callable[[str], None]:
    """Says what is being done: one changing line on a terminal, a line every ten seconds elsewhere."""
    begun = said = time.monotonic()

    def say(text: str) -> None:
        nonlocal said
        now = time.monotonic()
        if quiet:
            return
        if sys.stderr.isatty():
            click.echo(f"\r{text[:100]}{_CLEAR}", nl=False, err=True)
        elif now - said >= _LINE_EVERY_S:
            click.echo(f"{now - begun:.0f} s: {text}", err=True)
            said = now

    return say


def show(result: Result, *, only_json: bool, out: Path | None, report: Path | None) -> None:
    """Prints and writes everything asked for. Raises FileError."""
    if sys.stderr.isatty():
        click.echo(f"\r{_CLEAR}", nl=False, err=True)
    if not only_json:
        _print(result)
    if report is not None:
        for sentence in write_report(report, result):
            click.echo(f"note: {sentence}", err=True)
        click.echo(f"report: {report / 'report.md'}", err=True)
    if out is not None:
        write_document(out, result.document)
    click.echo(one_line(result.document))


def _print(result: Result) -> None:
    if not sys.stdout.isatty():
        click.echo("\n".join(markdown(table) for table in result.tables))
        for sentence in result.verdict:
            click.echo(sentence)
        return
    console = Console(highlight=False)
    for table in result.tables:
        console.print(_rich(table))
    for sentence in result.verdict:
        console.print(Text(sentence))


def _rich(table: Table) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, title=Text(table.title), title_justify="left", caption_justify="left")
    shown.caption = Text("\n".join(table.notes)) if table.notes else None
    for number, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown
