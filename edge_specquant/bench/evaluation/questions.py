"""Evaluation sets: four-choice questions, word problems, instructions; shipped, from local files, or from the hub.

Takes JSONL, JSON or parquet in the published sets' own field names or in ours; gives Questions. The only importer of
pyarrow. Asks no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import FileError, UsageError
from ...extras import pip_install
from ...routing.records.jsonl import read_objects

KINDS = ("mmlu", "gsm8k", "alpaca")
LETTERS = "ABCD"

# Where the published sets lie on the hub: (repository, file).
_HUB = {
    "mmlu": ("cais/mmlu", "all/test-00000-of-00001.parquet"),
    "gsm8k": ("openai/gsm8k", "main/test-00000-of-00001.parquet"),
    "alpaca": ("tatsu-lab/alpaca_eval", "alpaca_eval.json"),
}
_FINAL = re.compile(r"####\s*(-?[\d,]+)")


@dataclass(frozen=True, slots=True)
class Question:
    """text; choices and the right letter for mmlu, the right number for gsm8k, neither for alpaca."""

    id: str
    text: str
    choices: tuple[str, ...] = ()
    letter: str | None = None
    number: int | None = None
    subject: str = ""


def load_questions(kind: str, source: str | None = None, limit: int | None = None) -> list[Question]:
    """The first `limit` questions. source: None (shipped), a file, "hub", or "hub:OWNER/NAME:FILE".

    Raises FileError, UsageError.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no evaluation '{kind}'; there are {', '.join(KINDS)}")
    questions: list[Question] = []
    for number, record in enumerate(_records(kind, source), start=1):
        if limit is not None and len(questions) >= limit:
            break
        try:
            questions.append(_PARSERS[kind](number, record))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise FileError(
                f"record {number} of {source} is no {kind} question ({error!r}); see docs/bench.md"
            ) from error
    if not questions:
        raise FileError(f"{source} holds no questions")
    return questions


def _records(kind: str, source: str | None) -> Iterator[Mapping[str, Any]]:
    if source is None:
        with resources.as_file(resources.files("edge_specquant") / "bench" / "data" / f"{kind}.jsonl") as path:
            yield from (record for _, record in read_objects(path))
    elif source == "hub" or source.startswith("hub:"):
        yield from _read_file(_download(kind, source))
    else:
        yield from _read_file(Path(source).expanduser())


def _read_file(path: Path) -> Iterator[Mapping[str, Any]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _read_parquet(path)
    elif suffix == ".json":
        yield from _read_json(path)
    else:
        yield from (record for _, record in read_objects(path))


def _read_json(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise FileError(f"{path} holds no list of objects")
    return found


def _read_parquet(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise FileError(f"{path} needs pyarrow: {pip_install('parquet')}, or give JSONL") from error
    try:
        records: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as parquet: {error}") from error
    return records


def _download(kind: str, source: str) -> Path:
    """From the hub into its own cache. Raises FileError."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, file = _HUB[kind]
    if source != "hub":
        _, _, rest = source.partition(":")
        repository, _, named = rest.partition(":")
        file = named or file
    try:
        return Path(hf_hub_download(repository, file, repo_type="dataset"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FileError(
            f"{file} of {repository} cannot be fetched ({reason}); the shipped set works offline"
        ) from error


def _choice_question(number: int, record: Mapping[str, Any]) -> Question:
    choices = tuple(str(choice) for choice in record["choices"])
    answer = record["answer"]
    letter = LETTERS[answer] if isinstance(answer, int) else str(answer).strip().upper()
    if len(choices) != len(LETTERS) or letter not in LETTERS:
        raise ValueError(f"{len(choices)} choices, answer {answer!r}")
    subject = str(record.get("subject", "")).replace("_", " ")
    return Question(str(record.get("id", number)), str(record["question"]), choices, letter, subject=subject)


def _word_problem(number: int, record: Mapping[str, Any]) -> Question:
    answer = record["answer"]
    if isinstance(answer, str):
        found = _FINAL.search(answer)
        answer = (found[1] if found else answer).replace(",", "")
    return Question(str(record.get("id", number)), str(record["question"]), number=int(answer))


def _instruction(number: int, record: Mapping[str, Any]) -> Question:
    text = record.get("prompt", record.get("instruction", record.get("text")))
    if not isinstance(text, str):
        raise KeyError("prompt")
    extra = record.get("input")
    return Question(str(record.get("id", number)), f"{text}\n\n{extra}" if extra else text)


_PARSERS = {"mmlu": _choice_question, "gsm8k": _word_problem, "alpaca": _instruction}
