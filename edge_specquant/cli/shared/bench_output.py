"""How a bench shows itself: progress on stderr, tables and verdict on stdout, one JSON document as the last line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from ...bench.reports.document import one_line, write_document
from ...bench.reports.report import write_report
from ...bench.reports.result import Result
from ...bench.reports.tables import Table, markdown

_LINE_EVERY_S = 10.0


class ProgressLine:
    """Says what is being done: one changing line on a terminal, a line every ten seconds elsewhere.

    Drawn only when there is news: a line that redraws itself would take time from what is measured.
    """

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._begun = self._said = time.monotonic()
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._quiet:
            return
        if self._console.is_terminal:
            self._draw(text)
        elif now - self._said >= _LINE_EVERY_S:
            self._console.print(f"{now - self._begun:.0f} s: {text}", markup=False, soft_wrap=True)
            self._said = now

    def close(self) -> None:
        """Takes the line away, after Ctrl-C too; twice is fine."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _draw(self, text: str) -> None:
        if self._bars is None or self._task is None:
            columns = (TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bars = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._bars.start()
            self._task = self._bars.add_task("")
        self._bars.update(self._task, description=escape(text), refresh=True)


@contextlib.contextmanager
def progress_line(quiet: bool = False) -> Iterator[ProgressLine]:
    """On standard error; taken away at the end."""
    line = ProgressLine(Console(stderr=True, highlight=False), quiet=quiet)
    try:
        yield line
    finally:
        line.close()


def show(
    result: Result, *, only_json: bool, out: Path | None, report: Path | None, progress: ProgressLine | None = None
) -> None:
    """Takes the progress away, prints and writes everything asked for. Raises FileError."""
    if progress is not None:
        progress.close()
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
