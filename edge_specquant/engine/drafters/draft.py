"""The drafter seam: who guesses the next tokens. `lookup.py` copies from the text, `model_drafter.py` asks a sibling,
`portfolio.py` chooses among several.

A drafter keeps its own state in step with the history by being told what was accepted. Knows nothing of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..sampling import Distribution, TokenSampler
from ..signals import Offer, Signals


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft tokens with who proposed each, and the distribution each was drawn from (for the rejection rule).

    n_behind: tokens that the first step had to decode; None when cells were copied too.
    """

    tokens: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    signals: tuple[Signals, ...] = ()
    distributions: tuple[Distribution, ...] | None = None
    n_behind: int | None = 1


GoOn = Callable[[Signals], bool]

NOTHING = Draft()


class Drafter(Protocol):
    """begin -> (propose -> accepted)*. Histories only grow within a request."""

    name: str

    @property
    def decode_s(self) -> float:
        """Seconds spent in forwards so far."""
        ...

    def begin(self, history: Sequence[int]) -> None:
        """A new request: history is the prompt (and the first token)."""
        ...

    def offer(self, history: Sequence[int]) -> Offer | None:
        """What it could propose now; None is nothing. Costs microseconds."""
        ...

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """At most `limit` tokens that may follow; asks go_on after each whether another is wanted.

        sampler is a fork of the target's, in the state at the end of history; the drafter may advance it.
        """
        ...

    def accepted(self, n: int) -> None:
        """n tokens of the last draft became history; the rest leaves no trace."""
        ...

    def close(self) -> None:
        """Frees what it owns."""
        ...


class NoDrafter:
    """The target alone."""

    name = "none"
    decode_s = 0.0

    def begin(self, history: Sequence[int]) -> None:
        """Nothing to do."""

    def offer(self, history: Sequence[int]) -> Offer | None:
        """Nothing."""
        del history
        return None

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Nothing."""
        del history, limit, go_on, sampler
        return NOTHING

    def accepted(self, n: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to free."""
