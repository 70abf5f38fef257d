"""Traces: what each round of a reply did, one JSON line a round, for learning how long to draft.

Takes the rounds of the loop, writes and reads lines. Holds no token and no text. Knows no controller.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from ...errors import FileError
from ..signals import Signals
from ..stats import RoundRecord

VERSION = 1


@dataclass(frozen=True, slots=True)
class TraceRound:
    """One round: whose it was, what was drafted and accepted, seconds of both sides, and the draft's signals by token.

    reply tells replies apart. size_ratio: the draft's weights in bytes over the target's, the compression level of the
    pair; None for lookups. confidence, entropy (nats): one value a draft token, None where not measured.
    """

    reply: str
    family: str
    target: str
    draft: str
    task: str
    size_ratio: float | None
    n_drafted: int
    n_accepted: int
    draft_s: float
    verify_s: float
    width: int
    n_past: int
    confidence: tuple[float | None, ...]
    entropy: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.n_accepted <= self.n_drafted:
            raise ValueError(f"{self.n_accepted} of {self.n_drafted} drafted tokens accepted")
        if not len(self.confidence) == len(self.entropy) == self.n_drafted:
            raise ValueError(f"{len(self.confidence)} and {len(self.entropy)} signals of {self.n_drafted} tokens")

    @property
    def signals(self) -> tuple[Signals, ...]:
        """The signals as the drafter gave them."""
        both = zip(self.confidence, self.entropy, strict=True)
        return tuple(Signals(i, self.draft, confidence, entropy) for i, (confidence, entropy) in enumerate(both))

    @property
    def is_measured(self) -> bool:
        """Whether a sibling drafted and every token has its confidence and entropy."""
        return self.n_drafted > 0 and None not in self.confidence and None not in self.entropy


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Where rounds go, with the labels of whoever records. Appends only; each line is one write, so a killed process
    loses nothing but the line it was writing."""

    path: Path
    family: str = ""
    task: str = ""

    def recorder(self, target: str, n_bytes: Callable[[str], int | None]) -> Callable[[RoundRecord], None]:
        """Something that writes the rounds of one reply. n_bytes: the weights of a sibling. Raises FileError."""
        reply = uuid.uuid4().hex[:16]
        self._end_last_line()

        def write(record: RoundRecord) -> None:
            ratio = _ratio(n_bytes(record.source), n_bytes(target))
            self._append(_trace(record, reply, self.family, target, self.task, ratio))

        return write

    def _append(self, found: TraceRound) -> None:
        line = json.dumps({"version": VERSION} | asdict(found), allow_nan=False) + "\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(line.encode("ascii"))
        except OSError as error:
            raise FileError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _end_last_line(self) -> None:
        """A line cut short by a kill must not swallow the next one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
        except OSError as error:
            raise FileError(f"{self.path} cannot be written: {error.strerror or error}") from error


def read_traces(path: Path) -> list[TraceRound]:
    """Every round of a file, in its order. Lines cut short are passed over. Raises FileError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    found = [_parse(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    rounds = [each for each in found if each is not None]
    if not rounds:
        raise FileError(f"{path} holds no rounds; record some: edge-specquant run FAMILY PROMPT --record {path}")
    return rounds


def _trace(
    record: RoundRecord, reply: str, family: str, target: str, task: str, size_ratio: float | None
) -> TraceRound:
    return TraceRound(
        reply=reply,
        family=family,
        target=target,
        draft=record.source,
        task=task,
        size_ratio=size_ratio,
        n_drafted=record.n_drafted,
        n_accepted=record.n_accepted,
        draft_s=record.draft_s,
        verify_s=record.verify_s,
        width=record.width,
        n_past=record.n_past,
        confidence=tuple(signal.confidence for signal in record.signals),
        entropy=tuple(signal.entropy for signal in record.signals),
    )


def _ratio(draft: int | None, target: int | None) -> float | None:
    return draft / target if draft and target else None


def _parse(path: Path, number: int, line: str) -> TraceRound | None:
    try:
        plain = json.loads(line)
    except ValueError:
        if line.lstrip().startswith("{") and not line.rstrip().endswith("}"):
            return None  # cut short
        raise FileError(f"{path}, line {number} is not JSON; one round a line is expected") from None
    try:
        if plain["version"] > VERSION:
            raise FileError(f"{path}, line {number} was written by a newer program (version {plain['version']})")
        return TraceRound(**{field.name: _checked(plain, field.name) for field in fields(TraceRound)})
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}, line {number} is no round ({error!r})") from error


def _checked(plain: Mapping[str, Any], name: str) -> Any:
    value = plain[name]
    kind = _KINDS[name]
    if (kind is int and type(value) is not int) or (kind is str and type(value) is not str):
        raise TypeError(f"{name} is {value!r}")
    if kind in (int, str):
        return value
    if name in ("confidence", "entropy"):
        return tuple(None if each is None else _finite(each) for each in value)
    return None if value is None and name == "size_ratio" else _finite(value)


def _finite(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(f"{number} is no measurement")
    return number


_KINDS = get_type_hints(TraceRound)
