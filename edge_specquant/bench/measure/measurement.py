"""What is measured, as plain values: a Case is asked of a Contestant, which gives a Sample.

Knows nothing of engines, files or statistics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LONG_CLASS = "long prompt"
"""Cases that measure the time to first token only; they take no part in rates."""

STRICT = ", strict"
"""Ends the name of a contestant that runs under `--strict`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt to be answered greedily. prompt_class groups cases in tables ("story", "edit" ...)."""

    id: str
    prompt_class: str
    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One reply, measured. Seconds, joules; None is unknown.

    decode_s is the time from the first token to the last one, so n_generated - 1 tokens came in it. n_bytes_moved:
    weights read for the whole decode, over all forwards of target and draft. tokens: the reply's ids, if known.
    Of decode_s, target_s and drafter_s went into forwards, sampling_s into samplers and acceptance, draft_s into
    drafting as a whole.
    """

    n_prompt: int | None
    n_generated: int
    ttft_s: float | None
    decode_s: float
    tokens: tuple[int, ...] = ()
    n_rounds: int | None = None
    n_drafted: int | None = None
    n_accepted: int | None = None
    accepted_by_position: tuple[float, ...] = ()
    draft_s: float | None = None
    verify_s: float | None = None
    target_s: float | None = None
    drafter_s: float | None = None
    sampling_s: float | None = None
    n_bytes_moved: int | None = None
    prefill_j: float | None = None
    decode_j: float | None = None
    speedup_estimate: float | None = None
    reason: str = ""
    text: str = ""

    @property
    def tokens_per_s(self) -> float | None:
        """Decode rate, the first token left out; None for replies of fewer than two tokens."""
        return (self.n_generated - 1) / self.decode_s if self.n_generated > 1 and self.decode_s > 0 else None


Measure = Callable[[Case], Sample]


@dataclass(frozen=True, slots=True)
class Contestant:
    """Somebody who answers cases. baseline: the contestant that runs the same file without a draft (perhaps itself).

    target and draft are siblings' names. n_memory_bytes: weights, KV cache and buffers it needs, if known.
    """

    name: str
    baseline: str
    target: str
    draft: str
    measure: Measure
    n_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A sample and where it belongs."""

    contestant: str
    case: str
    prompt_class: str
    repeat: int
    sample: Sample

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready and short: a digest stands for the reply's ids, unknown figures are None."""
        data = asdict(self.sample)
        del data["text"]
        data["tokens"] = digest(self.sample.tokens)
        data["tokens_per_s"] = self.sample.tokens_per_s
        return {
            "contestant": self.contestant,
            "case": self.case,
            "class": self.prompt_class,
            "repeat": self.repeat,
            **data,
        }


def digest(tokens: Sequence[int]) -> str | None:
    """Twelve hexadecimal digits that are equal for equal replies; None for none."""
    if not tokens:
        return None
    return hashlib.sha256(" ".join(map(str, tokens)).encode("ascii")).hexdigest()[:12]
