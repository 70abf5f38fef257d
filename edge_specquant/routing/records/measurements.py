"""Measurements: how well and how fast each sibling follows the reference on one prompt.

The record between the measuring (which needs the engine) and the fit (which does not), kept as one JSON line a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...errors import FileError
from ..features.features import Features
from .jsonl import append_object, read_objects


@dataclass(frozen=True, slots=True)
class SiblingMeasure:
    """agreement: share of the reference's greedy tokens that this sibling would have chosen too, the right text before
    each given. kld: mean KL divergence from the reference in nats. Seconds a token, prefill and decode."""

    agreement: float
    kld: float
    prefill_s_per_token: float
    decode_s_per_token: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One prompt's measurements. n_prompt: tokens of the whole templated prompt; n_reply: of the reference's reply;
    decide_s: seconds that the features took, the parser included.
    """

    id: str
    group: str
    reference: str
    n_prompt: int
    n_reply: int
    features: Features
    siblings: Mapping[str, SiblingMeasure]
    decide_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def seconds(self, sibling: str) -> float:
        """Prefill and decode of the reply by this sibling alone, at the measured rates."""
        rate = self.siblings[sibling]
        return self.n_prompt * rate.prefill_s_per_token + self.n_reply * rate.decode_s_per_token


def append_measured(path: Path, measured: Measured) -> None:
    """Adds one line. Raises FileError."""
    append_object(path, asdict(measured))


def read_measured(path: Path) -> list[Measured]:
    """Every measurement of a file. Raises FileError."""
    return [_parse(path, number, record) for number, record in read_objects(path)]


def features_from(record: Mapping[str, Any]) -> Features:
    """Features of a JSON object; raises KeyError, TypeError when it is another thing."""
    return Features(**{field.name: record[field.name] for field in fields(Features)})


def _parse(path: Path, number: int, record: dict[str, Any]) -> Measured:
    try:
        return Measured(
            id=str(record["id"]),
            group=str(record["group"]),
            reference=str(record["reference"]),
            n_prompt=int(record["n_prompt"]),
            n_reply=int(record["n_reply"]),
            features=features_from(record["features"]),
            siblings={name: SiblingMeasure(**values) for name, values in record["siblings"].items()},
            decide_s=record.get("decide_s"),
            labels=record.get("labels", {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}, line {number} is no measurement ({error!r}); make it with router fit") from error
