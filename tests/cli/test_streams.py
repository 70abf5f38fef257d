"""Every command on a stream of every encoding: no traceback, JSON that is exact, and a word about what was replaced."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_specquant.cli.main import main
from edge_specquant.config import store_path
from edge_specquant.store import Store

ENCODINGS = ("cp1252", "cp437", "ascii", "utf-16", "utf-8")
ODD = "漢字 😀 é ─ \x1b[31m \udcff"
JSON_COMMANDS = (["history", "show", "1"], ["history", "list"], ["route", "{text}"], ["models", "list"])
COMMANDS = (
    ["history", "show", "1"],
    ["history", "list"],
    ["history", "search", "title"],
    ["history", "export", "1"],
    ["route", "{text}", "--explain"],
    ["route", "{text}"],
    ["models", "info", "{text}"],
    ["config", "{text}"],
    ["{text}"],
    ["config"],
    ["models", "list"],
    ["--help"],
)


class Streams:
    """Standard streams of one encoding, as Python makes them for a pipe."""

    def __init__(self, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.encoding = encoding
        self._out, self._err = io.BytesIO(), io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(self._out, encoding, "strict", newline=""))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(self._err, encoding, "backslashreplace", newline=""))

    def run(self, arguments: Sequence[str]) -> int:
        try:
            main(list(arguments))
        except SystemExit as leaving:
            return int(leaving.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0

    @property
    def out(self) -> str:
        return self._out.getvalue().decode(self.encoding)

    @property
    def err(self) -> str:
        return self._err.getvalue().decode(self.encoding)


@pytest.fixture(autouse=True)
def conversations(isolated_home: Path) -> None:
    if store_path().exists():
        return
    with Store.open(store_path()) as store:
        made = store.create(f"title {ODD[:-1]}", system=ODD[:-1])
        store.add(made.id, "user", ODD[:-1])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_survives_the_stream(command: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        streams = Streams(encoding, patch)
        code = streams.run([word.format(text=ODD) for word in command])
        out = streams.out if command[1:2] != ["export"] else ""  # a file, so UTF-8 whatever the terminal speaks
        err = streams.err
    assert code in (0, 1, 2)
    assert encoding.startswith("utf") or "漢字" not in out
    assert ("?? ?" in out) <= (f"that {encoding} lacks" in err)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=40), encoding=st.sampled_from(ENCODINGS))
def test_any_text_is_taken(text: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        streams = Streams(encoding, patch)
        code = streams.run(["models", "info", "--", text])
        assert code in (1, 2) and streams.err


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("command", JSON_COMMANDS, ids=" ".join)
def test_json_loses_nothing(command: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        streams = Streams(encoding, patch)
        assert streams.run([*(word.format(text="漢字 😀") for word in command), "--json"]) == 0
        found = json.loads(streams.out)
    if "history" in command:
        assert "漢字 😀 é ─ \x1b[31m" in json.dumps(found, ensure_ascii=False).replace("\\u001b", "\x1b")


@pytest.mark.parametrize("extra", [["--json"], [], ["--json", "--explain"]])
def test_route_says_nothing_beside_its_answer(extra: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "spacy", None)
        streams = Streams("utf-8", patch)
        assert streams.run(["route", "hello", *extra]) == 0
        assert streams.err == ""


@pytest.mark.parametrize("term", ["vt100", "vt220", "vt52"])
def test_a_terminal_without_colours_gets_none(term: str) -> None:
    """A forced terminal is the worst case: without the rule click and rich would both colour."""
    code = (
        "import sys; sys.stdout.isatty = sys.stderr.isatty = lambda: True; from edge_specquant.cli import main; main()"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        [sys.executable, "-c", code, "history", "show", "1"],
        capture_output=True,
        env={**environment, "TERM": term, "PYTHONIOENCODING": "utf-8"},
        timeout=300,
    )
    assert done.returncode == 0 and b"\x1b[" not in done.stdout


@pytest.mark.usefixtures("demo_family")
def test_a_reply_survives_a_real_pipe(encoding: str = "cp1252") -> None:
    """The model repeats characters that the pipe lacks."""
    ask = ["run", "demo", "Repeat exactly: 漢字 😀", "--temperature", "0", "--max-tokens", "16", "--draft", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "edge_specquant", *ask],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode(encoding)
