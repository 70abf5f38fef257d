"""Drafts that cost nothing and are nearly always right: what the reply's form leaves no choice about.

Keys, quotes, punctuation, the rest of a word that only one value has, the frame of a tool call. They are verified like
any draft, so the reply stays that of the constrained target. Where nothing is forced it offers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sampling import TokenSampler
from ..signals import Offer, Signals
from .draft import NOTHING, Draft, GoOn
from .lookup import LONGEST_MATCH


class GrammarDrafter:
    """Reads the target's own constraint, which stands at the end of the history between rounds."""

    name = "grammar"
    decode_s = 0.0

    def __init__(self, sampler: TokenSampler) -> None:
        self._sampler = sampler

    def begin(self, history: Sequence[int]) -> None:
        """Nothing to do: the constraint follows the reply."""

    def offer(self, history: Sequence[int]) -> Offer | None:
        """The forced tokens, as sure as the longest look-up."""
        del history
        constraint = self._sampler.constraint
        n = len(constraint.frame()) if constraint is not None else 0
        return Offer(self.name, n, match_length=LONGEST_MATCH) if n else None

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Up to `limit` of them."""
        del history, go_on
        tokens = sampler.constraint.frame()[:limit] if sampler.constraint is not None else ()
        if not tokens:
            return NOTHING
        signals = tuple(Signals(i, self.name, match_length=LONGEST_MATCH) for i in range(len(tokens)))
        return Draft(tokens, (self.name,) * len(tokens), signals)

    def accepted(self, n: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to free."""
