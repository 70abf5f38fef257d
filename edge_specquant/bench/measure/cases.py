"""The bench's own prompts, in five classes: story, explanation, new code, short fact, edit this code.

Gives Cases, the most telling of each class first. Knows nothing of who answers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

from ...errors import FileError, UsageError
from ...gguf.quantize.collect import shipped_text
from ...native.protocol import Vocab
from ...routing.records.jsonl import read_objects
from .measurement import LONG_CLASS, Case

EDIT_CLASS = "edit this code"
_LONG_QUESTION = "\n\nSay in one sentence what the text above is about."


def load_cases(
    path: Path | None = None, *, classes: tuple[str, ...] = (), max_tokens: int | None = None, per_class: int = 3
) -> list[Case]:
    """Cases of a JSONL file (prompt or text; class, id and max_tokens if given), or the shipped ones.

    classes: only these. max_tokens: a cap for all. per_class: at most so many of each. Raises FileError, UsageError.
    """
    found = list(_read(path)) if path else list(_shipped())
    known = dict.fromkeys(case.prompt_class for case in found)
    unknown = [name for name in classes if name not in known]
    if unknown:
        raise UsageError(f"there is no prompt class '{unknown[0]}'; the classes are {', '.join(known)}")
    kept: dict[str, list[Case]] = {}
    for case in found:
        if not classes or case.prompt_class in classes:
            kept.setdefault(case.prompt_class, []).append(case)
    chosen = [case for cases in kept.values() for case in cases[:per_class]]
    return [replace(case, max_tokens=min(case.max_tokens, max_tokens or case.max_tokens)) for case in chosen]


def long_case(vocab: Vocab, n_tokens: int = 1500, max_tokens: int = 16) -> Case:
    """A prompt of about n_tokens, for the time to first token: text of the package, and a question about it."""
    text = shipped_text("heldout")
    ids = vocab.tokenize(text)
    repeated = (ids * (1 + n_tokens // max(1, len(ids))))[:n_tokens]
    shown = b"".join(vocab.piece(token) for token in repeated).decode("utf-8", "replace")
    return Case(f"long-{n_tokens}", LONG_CLASS, shown + _LONG_QUESTION, max_tokens)


def _shipped() -> Iterator[Case]:
    with resources.as_file(resources.files("edge_specquant") / "bench" / "data" / "cases.jsonl") as path:
        yield from _read(path)


def _read(path: Path) -> Iterator[Case]:
    for number, record in read_objects(path):
        prompt = record.get("prompt", record.get("text"))
        n_tokens = record.get("max_tokens", 128)
        if not isinstance(prompt, str) or not isinstance(n_tokens, int) or n_tokens < 1:
            raise FileError(f"{path}, line {number}: give a 'prompt' of words and, if any, 'max_tokens' of 1 or more")
        yield Case(str(record.get("id", number)), str(record.get("class", "prompts")), prompt, n_tokens)
