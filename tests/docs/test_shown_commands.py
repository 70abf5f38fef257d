"""Every command in a shell block of README and docs is run, page by page, on a tiny family that is called demo.

What cannot run in a test (`NOT_RUN` in shown_commands.py says why, once) is parsed by click at least.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from shown_commands import (
    ALSO,
    NOT_RUN,
    PAGES,
    PROGRAM,
    ROOT,
    STANDS_FOR,
    STOPPED_AT,
    ShownCommand,
    shown_commands,
    unmarked,
)

from edge_specquant.cli.main import root

SHOWN = list(shown_commands())
WITH_SOMETHING_TO_RUN = sorted({shown.page for shown in SHOWN if not shown.why_not})
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
PROGRAMS = [(page, code) for page in PAGES for code in PYTHON.findall(page.read_text(encoding="utf-8"))]
QUESTIONS = [f"the cat and {n} hats in the street" for n in range(20)]
QUICK = ["--repeats", "1", "--max-tokens", "4", "--class", "story", "--per-class", "1", "--threads", "1"]
TALK = """<!-- conversation {"title": "The hat", "system": "", "created_at": 1} -->
# The hat

## User

<!-- message {"role": "user", "status": "complete", "created_at": 1} -->
What of the cat?

## Assistant

<!-- message {"role": "assistant", "status": "complete", "created_at": 2} -->
It is in the hat.
"""


def parsed(words: list[str]) -> click.Context:
    """What click makes of a command line, without running it. Raises click.UsageError."""
    command: click.Command = root
    context, rest = click.Context(root, info_name=PROGRAM), words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(context, rest)
        assert name is not None and found is not None
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, parent=context, info_name=name)
    return command.make_context(words[0], rest, parent=context)


@pytest.fixture(scope="module")
def prepared(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader has it: a family, a checkpoint, prompts, recorded rounds, a conversation, two benches."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copy(tiny_gguf, folder / "tiny.gguf")
    (folder / "prompts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in QUESTIONS), encoding="utf-8")
    (folder / "seed.md").write_text(TALK, encoding="utf-8")
    trace = ["--draft", "q4", "--n-draft", "8", "--max-tokens", "40", "--temperature", "0", "--quiet"]
    for line in (
        ["convert", "tiny.gguf", "--name", "demo", "--no-quality"],
        ["history", "import", "seed.md"],
        ["run", "demo", "Hi!", "--policy", "fast", "--max-tokens", "4"],
        *(["run", "demo", text, *trace, "--record", "traces.jsonl"] for text in QUESTIONS[:5]),
        ["bench", "demo", *QUICK, "--out", "A.json"],
    ):
        done = run([PROGRAM, *line], folder)
        assert done.returncode == 0, done.stderr
    shutil.copy(folder / "A.json", folder / "B.json")
    return folder


def as_run(words: list[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """(arguments, environment) of a command whose home is the folder."""
    if words[0].endswith(PROGRAM):
        words = [sys.executable, "-m", "edge_specquant", *words[1:]]
    elif words[0].startswith(("scripts/", "packaging/")):
        words = [str(ROOT / words[0]), *words[1:]]
    home = {"HOME": str(folder), "EDGE_SPECQUANT_HOME": str(folder / "data"), "COLUMNS": "100"}
    return words, {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **home}


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """In the folder, to its end; the chat is given two lines."""
    words, environment = as_run(words, folder)
    return subprocess.run(
        words,
        env=environment,
        cwd=folder,
        input="hi\n/quit\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_until(words: list[str], folder: Path, said: str) -> subprocess.CompletedProcess[str]:
    """In the folder, until it says so; then it is stopped by Ctrl-C, which is no failure."""
    words, environment = as_run(words, folder)
    output = ""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, env=environment, cwd=folder, text=True, **streams) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if said in line:
                process.send_signal(signal.SIGINT)
    code = 0 if said in output and process.returncode in (0, 130) else process.returncode or 1
    return subprocess.CompletedProcess(words, code, "", output)


@pytest.mark.parametrize("page", WITH_SOMETHING_TO_RUN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_shown_does_its_work(page: Path, prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    for shown in SHOWN:
        if shown.page == page and not shown.why_not:
            said = shown.stopped_at
            done = run_until(shown.to_run, folder, said) if said else run(shown.to_run, folder)
            assert done.returncode == 0, f"{shown.where}\n{done.stdout[-500:]}\n{done.stderr[-1500:]}"
            assert "Traceback" not in done.stderr, shown.where
            asked = [word for word in shown.words if word.startswith("--")] if shown.to_run[-1] == "--help" else []
            assert [word for word in asked if word not in done.stdout] == [], shown.where


@pytest.mark.parametrize("page, code", PROGRAMS, ids=lambda value: value.name if isinstance(value, Path) else "")
def test_every_python_program_shown_runs(page: Path, code: str, prepared: Path, tmp_path: Path) -> None:
    if "import OpenAI" in code:
        pytest.skip("needs a server: tests/server/test_clients.py does the same")
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    done = run([sys.executable, "-c", code], folder)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.parametrize("shown", [s for s in SHOWN if s.is_ours], ids=lambda shown: shown.where)
def test_click_takes_every_command(shown: ShownCommand) -> None:
    parsed(shown.words)


def test_extras_that_are_installed_exist() -> None:
    table = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.optional-dependencies]")[1]
    extras = set(re.findall(r"^([a-z]+) = \[", table.split("[project.scripts]")[0], re.MULTILINE))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {name for group in re.findall(r"(?:edge-specquant|[\"'.])\[([a-z,]+)\]", text) for name in group.split(",")}
    assert named and named <= extras


def test_the_lists_hold_nothing_that_is_not_shown() -> None:
    for shown, _ in (*NOT_RUN, *ALSO, *STOPPED_AT):
        assert any(re.match(shown, each.plain) for each in SHOWN), shown
    assert STANDS_FOR.keys() <= {word for each in SHOWN for word in each.text.split()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_shell_blocks_are_marked(page: Path) -> None:
    assert list(unmarked(page.read_text(encoding="utf-8"))) == []


def test_the_parser_sees_what_is_wrong() -> None:
    for wrong in (["models", "show"], ["run", "demo", "hi", "--temperature", "hot"], ["bench", "compare", "A.json"]):
        with pytest.raises(click.UsageError):
            parsed([PROGRAM, *wrong])
