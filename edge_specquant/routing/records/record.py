"""The record of one reply's route: what was decided, from which numbers, and what it cost. One JSON line a reply.

Written by the runtime, read by `router report`. Holds no text of the prompt, only a hash of it. Knows no engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ... import config
from ...errors import FileError
from ..features.features import Features
from ..router import Route
from .jsonl import append_object, read_objects
from .measurements import features_from

VERSION = 1
FILE_NAME = "routes.jsonl"


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """time: ISO 8601, UTC. prompt_hash: see `hash_prompt`. Tokens in n_*, seconds in *_s; None is unknown.

    ttft_s counts from the request, decide_s (features and route) included. decode_s is the time after the first token.
    """

    time: str
    prompt_hash: str
    policy: str
    tier: str
    target: str
    draft: str
    controller: str
    score: float
    thresholds: tuple[float, float]
    features: Features
    reasons: tuple[str, ...]
    nearest_flip: str
    decide_s: float | None
    n_prompt: int
    n_generated: int
    ttft_s: float | None
    decode_s: float
    acceptance_rate: float | None
    version: int = VERSION

    @property
    def total_s(self) -> float:
        """First token and the rest."""
        return (self.ttft_s or 0.0) + self.decode_s


def make_record(
    route: Route,
    prompt: str,
    *,
    time: str,
    decide_s: float | None,
    n_prompt: int,
    n_generated: int,
    ttft_s: float | None,
    decode_s: float,
    acceptance_rate: float | None = None,
) -> RouteRecord:
    """A route and the figures of the reply it led to."""
    decided = {field.name: getattr(route, field.name) for field in fields(Route)}
    return RouteRecord(
        **decided,
        time=time,
        prompt_hash=hash_prompt(prompt),
        decide_s=decide_s,
        n_prompt=n_prompt,
        n_generated=n_generated,
        ttft_s=ttft_s,
        decode_s=decode_s,
        acceptance_rate=acceptance_rate,
    )


def hash_prompt(text: str) -> str:
    """16 hex digits: tells equal prompts apart from others without keeping their text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def default_file() -> Path:
    """Where the runtime writes and the report reads."""
    return config.logs_dir() / FILE_NAME


def append_record(path: Path, record: RouteRecord) -> None:
    """Adds one line. Raises FileError."""
    append_object(path, asdict(record))


def read_records(path: Path) -> list[RouteRecord]:
    """Every record of a file. Raises FileError, also for a record of a newer program."""
    return [_parse(path, number, found) for number, found in read_objects(path)]


def _parse(path: Path, number: int, found: Mapping[str, Any]) -> RouteRecord:
    if found.get("version", 0) > VERSION:
        raise FileError(f"{path}, line {number} was written by a newer program (version {found['version']})")
    try:
        plain = {field.name: found[field.name] for field in fields(RouteRecord)}
        plain["features"] = features_from(found["features"])
        plain["thresholds"] = (float(found["thresholds"][0]), float(found["thresholds"][1]))
        plain["reasons"] = tuple(found["reasons"])
        return RouteRecord(**plain)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FileError(f"{path}, line {number} is no route record ({error!r})") from error
