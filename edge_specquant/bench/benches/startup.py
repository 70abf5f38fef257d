"""`bench startup FAMILY`: how long a person waits for the chat: for the screen, a letter, the model, the way out.

Starts the real command in a terminal of its own, again and again. Sends no message, and nothing is kept. Knows the
chat only by what it shows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...gguf.family.family import Family
from ...placement.machine.this_machine import probe_here
from ...units import format_seconds
from ..measure.environment import environment_line, record_environment
from ..measure.statistics import Spread, spread
from ..measure.terminal import Terminal
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..reports.tables import UNKNOWN, Table

GOAL_TYPED_S = 1.0
REPEATS = 7
PROMPT = "sk anything"  # of the placeholder; the cursor stands on its first letter
LETTER = "§"  # nothing else on the screen and no control sequence holds it
READY = " ready"
QUIT = "\x11"  # Ctrl-Q
PATIENCE_S = 180.0
NOTHING_KEPT = {"EDGE_SPECQUANT_STORE_ENABLED": "false"}


@dataclass(frozen=True, slots=True)
class Start:
    """One start. Seconds since the command, except key_s and quit_s: since the key."""

    painted_s: float
    typed_s: float
    key_s: float
    ready_s: float
    quit_s: float


ROWS: tuple[tuple[str, Callable[[Start], float]], ...] = (
    ("command to first screen", lambda start: start.painted_s),
    ("command to the first typed letter on it", lambda start: start.typed_s),
    ("of this, key to letter", lambda start: start.key_s),
    ("command to models in memory", lambda start: start.ready_s),
    ("Ctrl-Q to the shell", lambda start: start.quit_s),
)


def bench_startup(family: Family, say: Say, *, repeats: int = REPEATS, n_threads: int = 0) -> Result:
    """Starts the chat `repeats` times; n_threads 0 is its own choice.

    Raises UsageError without pseudo-terminals, EngineError when the chat does not show what it should.
    """
    environment = record_environment(probe_here(), family, n_threads)
    command = chat_command(family, n_threads)
    starts = []
    for number in range(repeats):
        starts.append(measure_start(command))
        say(f"start {number + 1} of {repeats}: {format_seconds(starts[-1].typed_s)} to the first letter")
    table = startup_table(family.name, starts, environment_line(environment))
    sentences = (_verdict(starts),)
    document = make_document(
        "startup", environment=environment, goal_typed_s=GOAL_TYPED_S, verdict=sentences, runs=starts
    )
    return Result(f"{family.name}: starting the chat", document, (table,), sentences)


def chat_command(family: Family, n_threads: int) -> list[str]:
    """The command as a person gives it."""
    threads = ["--threads", str(n_threads)] if n_threads else []
    return [sys.executable, "-m", "edge_specquant", "chat", str(family.folder), *threads]


def measure_start(command: Sequence[str]) -> Start:
    """Starts, types a letter as soon as there is somewhere to type, waits for the models, leaves."""
    with Terminal(command, environment=NOTHING_KEPT) as terminal:
        painted_s = terminal.seen(PROMPT, PATIENCE_S)
        pressed_s = terminal.type(LETTER)
        typed_s = terminal.seen(LETTER, PATIENCE_S)
        ready_s = terminal.seen(READY, PATIENCE_S)
        asked_s = terminal.type(QUIT)
        ended_s = terminal.ended(PATIENCE_S)
    return Start(painted_s, typed_s, typed_s - pressed_s, ready_s, ended_s - asked_s)


def startup_table(name: str, starts: Sequence[Start], where: str) -> Table:
    """A row a wait: the median, the quartiles, the longest."""
    rows = []
    for title, of in ROWS:
        values = [of(start) for start in starts]
        rows.append((title, *_spread_cells(spread(values)), format_seconds(max(values)) if values else UNKNOWN))
    columns = ("wait", "median", "quartiles", "longest")
    notes = (f"{len(starts)} starts of the real command in a terminal of 120 columns and 40 lines", where)
    return Table(f"{name}: starting the chat", columns, tuple(rows), notes)


def _spread_cells(found: Spread | None) -> tuple[str, str]:
    if found is None:
        return UNKNOWN, UNKNOWN
    quartiles = f"{format_seconds(found.low)} to {format_seconds(found.high)}" if found.n > 1 else UNKNOWN
    return format_seconds(found.median), quartiles


def _verdict(starts: Sequence[Start]) -> str:
    found = spread([start.typed_s for start in starts])
    if found is None:
        return "nothing was started"
    met = "met" if found.median < GOAL_TYPED_S else "missed"
    return (
        f"from the command to a typed letter on the screen: {format_seconds(found.median)}; the goal, under "
        f"{format_seconds(GOAL_TYPED_S)}, is {met}"
    )
