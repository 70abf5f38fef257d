"""`bench startup` and the terminal it looks through: what a program shows is seen, what is typed arrives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("termios", reason="no pseudo-terminals here")

from edge_specquant.bench.benches.startup import ROWS, Start, startup_table
from edge_specquant.bench.measure.terminal import Terminal
from edge_specquant.bench.reports.document import read_document
from edge_specquant.cli.main import root
from edge_specquant.errors import EngineError

ECHO = "import shutil, sys; print('size', *shutil.get_terminal_size(), flush=True); print('got', input(), flush=True)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_program_is_seen_typed_to_and_its_end_noticed() -> None:
    with Terminal(python(ECHO), size=(97, 31)) as terminal:
        began_s = terminal.seen("size 97 31", 20)
        typed_s = terminal.type("grüße\n")
        seen_s = terminal.seen("got grüße", 20)
        assert 0 < began_s < typed_s < seen_s <= terminal.ended(20)


def test_what_never_shows_is_an_error_with_the_last_words() -> None:
    with Terminal(python("print('no \\x1b[1mmodel')")) as terminal, pytest.raises(EngineError, match=r"ended.*model"):
        terminal.seen("ready", 20)
    waits = "import time; print('still', flush=True); time.sleep(60)"
    with Terminal(python(waits)) as terminal:
        terminal.seen("still", 20)
        for wait in (lambda: terminal.seen("ready", 0.05), lambda: terminal.ended(0.05)):
            with pytest.raises(EngineError, match="still"):
                wait()


def test_each_wait_has_a_row() -> None:
    starts = [Start(0.5 + i / 10, 0.6 + i / 10, 0.05, 1.5, 0.2) for i in range(3)]
    table = startup_table("tiny", starts, "here")
    assert [row[0] for row in table.rows] == [title for title, _ in ROWS]
    assert table.rows[1] == ("command to the first typed letter on it", "700 ms", "650 ms to 750 ms", "800 ms")


def test_the_real_chat_starts_types_loads_and_leaves(tiny_gguf: Path, tmp_path: Path) -> None:
    """On a tiny family, in a home of its own, where nothing may be left behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path / "home"))
        made = CliRunner().invoke(root, ["convert", str(tiny_gguf), "--name", "tiny", "--no-quality"])
        assert made.exit_code == 0, made.output
        done = CliRunner().invoke(
            root, ["bench", "startup", "tiny", "--repeats", "1", "--threads", "1", "--out", str(tmp_path / "out.json")],
            catch_exceptions=False,
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    document = read_document(tmp_path / "out.json")
    assert document["bench"] == "startup" and json.loads(done.output.splitlines()[-1]) == document
    (run,) = document["runs"]
    assert 0 < run["painted_s"] <= run["typed_s"] <= run["ready_s"] and run["quit_s"] > 0
    assert not (tmp_path / "home" / "chat.json").exists() and not list(tmp_path.rglob("*.db"))
