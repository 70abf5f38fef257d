"""The shell lines that README and docs show, and what a test makes of each: run it, shorten it, or say why not.

Gives `ShownCommand`s in the order of the pages. Runs nothing itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(page for where in ("*", "docs/**/*", "packaging/*/*", "models/*") for page in ROOT.glob(f"{where}.md"))
PROGRAM = "edge-specquant"

# Words that stand for the reader's own; the files among them are made by the test.
STANDS_FOR = {
    "FAMILY": "demo",
    "FAMILY-fitted": "demo-fitted",
    "NAME": "demo",
    "SOURCE": "tiny.gguf",
    "PROMPT": "the cat",
    "WORD": "the",
    "KEY": "secret",
    "FILE": "out.json",
    "12": "1",
    "M.jsonl": "prompts.demo.measured.jsonl",
    "P.jsonl": "prompts.jsonl",
}
# The rest of a command that takes minutes on a real family, or would write outside the test's folder.
ALSO = (
    (r"edge-specquant convert ", "--no-quality"),
    (r"edge-specquant models remove ", "--yes"),
    (r"edge-specquant run ", "--max-tokens 8"),
    (r"edge-specquant bench compare ", ""),
    (r"edge-specquant bench server ", "--requests 1 --max-tokens 4 --threads 1 --no-peer"),
    (r"edge-specquant bench startup ", "--repeats 1 --threads 1"),
    (r"edge-specquant bench specquant ", "--limit 1 --ctx 2048 --threads 1"),
    (
        r"edge-specquant bench speculation ",
        "--repeats 1 --max-tokens 4 --per-class 1 --class story --long 0 --target q8 --threads 1",
    ),
    (r"edge-specquant bench ", "--repeats 1 --max-tokens 4 --per-class 1 --class story --ctx 2048 --threads 1"),
    (r"edge-specquant eval ", "--limit 1 --threads 1"),
    (r"edge-specquant serve ", "--port 0 --ctx 512 --threads 1 --in-process"),
    (r"edge-specquant calibrate ", "--passes 1 --variants q4 --threads 1"),
    (r"edge-specquant router fit ", "--reply 4 --threads 1"),
    (r"packaging/", "--dry-run"),
    (r"scripts/gpu-check", "--dry-run"),
    (r"scripts/", "--help"),
)
# Commands that go on until they are stopped: stopped once they have said this.
STOPPED_AT = ((r"edge-specquant serve ", "serving on"), (r"edge-specquant chat --web", "in a browser"))
# Not run, and why. The program's own commands among them are parsed nevertheless.
NOT_RUN = (
    (r"(\.venv/bin/)?pipx? (install|wheel) |CMAKE_ARGS=.* pipx", "a package index"),
    (r"python3 -m venv ", "the environment is for what a package index or a bundle brings"),
    (r"\.venv/bin/pre-commit ", "writes into the clone's .git"),
    (r"(sudo|systemctl|journalctl) ", "root and systemd"),
    (r"tar -xf|cd edge-specquant-\*|python3 install\.py|~/edge-specquant/bin/", "a bundle: tests/packaging makes one"),
    (r"lm_eval ", "another project's program"),
    (r"scripts/test\b", "would start these tests again"),
    (r"edge-specquant rpc-worker ", "an engine built with RPC: tests/native/library/test_rpc.py"),
    (r"edge-specquant plan .*--rpc", "other machines"),
    (r"edge-specquant bench .*--peer", "other servers"),
    (r"edge-specquant convert [A-Za-z]\w*/", "the hub"),
)


@dataclass(frozen=True, slots=True)
class ShownCommand:
    """One command of a shell block. text: as shown, without its remark."""

    page: Path
    line: int
    text: str

    @property
    def where(self) -> str:
        """'docs/bench.md:7: edge-specquant bench ...', for failures."""
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}: {self.text}"

    @property
    def words(self) -> list[str]:
        """As typed by a reader who has put in their own."""
        words = [STANDS_FOR.get(word, word) for word in shlex.split(self.text)]
        if words[1:3] == ["convert", "demo"]:  # the real one takes a while, and other tests make it
            words[2:3] = ["tiny.gguf", "--name", "demo"]
        return words

    @property
    def to_run(self) -> list[str]:
        """The words, made short enough for a test."""
        return [*self.words, *next((shlex.split(more) for shown, more in ALSO if re.match(shown, self.plain)), [])]

    @property
    def plain(self) -> str:
        """The text with the program's name alone, wherever it lies."""
        return re.sub(rf"^\.venv/bin/{PROGRAM}", PROGRAM, self.text)

    @property
    def why_not(self) -> str | None:
        """The reason why it is not run."""
        return next((reason for shown, reason in NOT_RUN if re.match(shown, self.plain)), None)

    @property
    def stopped_at(self) -> str | None:
        """What it says once it runs, if it goes on until it is stopped."""
        return next((said for shown, said in STOPPED_AT if re.match(shown, self.plain)), None)

    @property
    def is_ours(self) -> bool:
        """Whether it is the program, not a script or somebody else's."""
        return self.plain.split()[0] == PROGRAM


def shown_commands() -> Iterator[ShownCommand]:
    """Every command in a block marked as sh."""
    for page in PAGES:
        for number, line in shell_lines(page.read_text(encoding="utf-8")):
            for part in re.split(r"\s&&\s", _without_remark(line)):
                text = part.removesuffix("&").strip()
                if text:
                    yield ShownCommand(page, number, text)


def shell_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines of shell blocks; a line that ends with a backslash takes in the next."""
    language, begun, start = None, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            language = None if language is not None else line[3:].strip()
        elif language == "sh":
            start = start or number
            begun += line.removesuffix("\\")
            if not line.endswith("\\"):
                yield start, begun
                begun, start = "", 0


def unmarked(text: str) -> Iterator[str]:
    """Lines that look like commands in blocks that are not marked as shell."""
    fenced, before = False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif (
            not fenced and not before and re.match(rf"    (\.venv/bin/|(scripts|packaging)/\S|pip |{PROGRAM}\b)", line)
        ):
            yield line
        before = line.strip()


def _without_remark(line: str) -> str:
    """The line up to a # that begins a word."""
    match = re.match(r"""((?:'[^']*'|"[^"]*"|[^\s#'"]\S*|[^\S\n]+(?!#))*)""", line)
    return match[1].strip() if match else line
