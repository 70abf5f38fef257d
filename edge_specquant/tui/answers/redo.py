"""A redo: an answer of a coarser sibling, put before a more precise one as one long draft. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PRECISION = ("q2", "q3", "q4", "q5", "q6", "q8", "f16", "bf16", "f32")


@dataclass(frozen=True, slots=True)
class Redo:
    """The tokens of the answer on show and who will judge them."""

    target: str
    tokens: tuple[int, ...]

    def record(self, n_agreeing: int) -> dict[str, object]:
        """What is kept: how many leading tokens the judge kept, of how many."""
        return {"target": self.target, "n_agreeing": n_agreeing, "n_tokens": len(self.tokens)}


def judge_for(written_by: str, siblings: Sequence[str]) -> str | None:
    """The most precise sibling, if it is more precise than the writer."""
    best = max(siblings, key=_rank, default=None)
    return best if best is not None and _rank(best) > _rank(written_by) else None


def _rank(name: str) -> int:
    return PRECISION.index(name) if name in PRECISION else -1
