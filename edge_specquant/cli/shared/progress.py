"""Progress bars on stderr for the verbs that write or hash files. On no terminal: one line a step, nothing more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

StepProgress = Callable[[str, int, int], None]


@contextlib.contextmanager
def step_progress(console: Console | None = None) -> Iterator[StepProgress]:
    """Yields report(step, done_bytes, total_bytes); a new step ends the bar of the one before."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _line_reporter(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        yield _bar_reporter(bars)


def _bar_reporter(bars: Progress) -> StepProgress:
    current: tuple[str, TaskID] | None = None

    def report(step: str, done: int, total: int) -> None:
        nonlocal current
        if current is None or current[0] != step:
            if current is not None:
                bars.remove_task(current[1])
            current = (step, bars.add_task(escape(step), total=total or None))
        bars.update(current[1], completed=done, total=total or None)

    return report


def _line_reporter(console: Console) -> StepProgress:
    last = ""

    def report(step: str, done: int, total: int) -> None:
        nonlocal last
        del done, total
        if step != last:
            console.print(step, markup=False)
            last = step

    return report
