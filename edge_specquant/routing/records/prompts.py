"""Prompt sets: one JSON object a line, with a text and, if there are any, labels.

Takes a file, gives prompts. Fields: text (or prompt), id, pair (prompts that belong together), lang, class, level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import FileError
from .jsonl import read_objects

_LABELS = ("lang", "class", "level")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. group: prompts that must stay on one side of a split; its own id when the file names no pair."""

    id: str
    text: str
    group: str
    labels: Mapping[str, str] = field(default_factory=dict)


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a file. Raises FileError for a file that is no such set, or an id used twice."""
    prompts: list[Prompt] = []
    seen: set[str] = set()
    for number, record in read_objects(path):
        text = record.get("text", record.get("prompt"))
        if not isinstance(text, str):
            raise FileError(f"{path}, line {number} has no text: give each line a 'text' (or 'prompt') of words")
        prompt_id = str(record.get("id", number))
        if prompt_id in seen:
            raise FileError(f"{path}, line {number} uses the id '{prompt_id}' again; ids must differ")
        seen.add(prompt_id)
        labels = {name: str(record[name]) for name in _LABELS if name in record}
        prompts.append(Prompt(prompt_id, text, str(record.get("pair", prompt_id)), labels))
    if not prompts:
        raise FileError(f"{path} holds no prompts")
    return prompts
