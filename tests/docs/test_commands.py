"""Every command that README and docs show exists: the verb, each flag, and no missing argument. Nothing is run."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from _docs.commands import PROGRAM, Verb, verbs  # noqa: E402 (found through the line above)

PAGES = sorted(page for where in ("*", "docs/**/*", "packaging/*/*", "models/*") for page in ROOT.glob(f"{where}.md"))
VERBS = {verb.name: verb for verb in verbs()}
# A comment, a pipe, another command or a redirection ends a command.
END = re.compile(r"\s+#|\s{3,}|\s*(?<!\\)[|;]\s|\s&&\s|\s&(\s|$)|\s>\s|\s<\s")


def code_lines(text: str) -> Iterator[str]:
    """Lines of indented and fenced blocks, and inline code."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()
        else:
            yield from re.findall(r"`([^`]+)`", line)


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind the program's name, wherever a command of it is shown."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in code_lines(text):
        found = re.search(rf"(?:^|/|=|\$ |&& |[A-Z]=\S+ |run: ){PROGRAM} (?=[a-z-])(.*)", line)
        if found:
            shown = END.split(found[1])[0]
            try:
                yield shlex.split(shown)
            except ValueError:
                yield shown.split()


def problem(words: list[str]) -> str | None:
    """What is wrong with a shown command, or nothing."""
    name, rest = PROGRAM, list(words)
    while rest and not rest[0].startswith("-") and isinstance(VERBS[name].command, click.Group):
        alternatives = re.sub(r"[\[\]]", "", rest[0]).split("|")
        if len(alternatives) > 1:  # `models list|show NAME`: each must exist; their arguments differ
            return next((f"there is no {name} {each}" for each in alternatives if f"{name} {each}" not in VERBS), None)
        try:
            # Asked of the group itself: some have a verb that need not be named.
            found, _, rest = VERBS[name].command.resolve_command(VERBS[name].context, rest)
        except click.UsageError as error:
            return error.message
        name = f"{name} {found}"
    return next((message for word in rest if (message := wrong_flag(VERBS[name], word))), None)


def wrong_flag(verb: Verb, word: str) -> str | None:
    flag = word.strip("[]").split("=")[0]
    known = verb.flags | VERBS[PROGRAM].flags | {"--help", "-h", "--"}
    return f"{verb.name} has no {flag}" if re.match(r"--?[a-z]", flag) and flag not in known else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_shown_exists(page: Path) -> None:
    wrong = [f"{' '.join(words)}: {message}" for words in commands(page) if (message := problem(words))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_script_shown_exists(page: Path) -> None:
    for path in re.findall(r"\b((?:scripts|packaging)/[\w./-]*\w)", page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("path", sorted(ROOT.glob("scripts/*")), ids=lambda path: path.name)
def test_scripts_can_be_run_and_say_what_they_are(path: Path) -> None:
    if path.name.startswith("_"):
        return
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!") and '"""' in text.splitlines()[1]
    assert os.name != "posix" or os.access(path, os.X_OK)


def test_the_check_sees_what_is_wrong() -> None:
    assert problem(["chatt", "demo"]) and problem(["run", "demo", "--tempratur", "0"])
    assert problem(["models", "list", "--nonsense"])
    assert not problem(["run", "demo", "hi", "--temperature", "0"]) and not problem(["models", "list|show", "NAME"])
