"""Drafts copied from what was already said: the longest n-gram match in prompt and output, the most recent first.

Costs nothing but dictionary look-ups, whatever the context length (prompt lookup decoding; llama.cpp examples/lookup).
"""

from __future__ import annotations

from collections.abc import Sequence

from .draft import NOTHING, Draft, GoOn, Signals
from .sampling import TokenSampler

LONGEST, SHORTEST = 4, 2


class NgramIndex:
    """Where each n-gram of a growing history was last followed by something."""

    def __init__(self, longest: int = LONGEST, shortest: int = SHORTEST) -> None:
        self.sizes = tuple(range(longest, shortest - 1, -1))
        self._follows: dict[tuple[int, ...], int] = {}
        self._n_seen = 0

    def update(self, history: Sequence[int]) -> None:
        """Indexes what was appended since the last call; n-grams that end at the last token wait for a successor."""
        for end in range(max(self._n_seen, 1), len(history)):
            for n in self.sizes:
                if end >= n:
                    self._follows[tuple(history[end - n : end])] = end
        self._n_seen = max(self._n_seen, len(history))

    def find(self, tail: Sequence[int]) -> tuple[int, int] | None:
        """(where the continuation starts, length of the match) for the longest known suffix of tail."""
        for n in self.sizes:
            if len(tail) >= n:
                start = self._follows.get(tuple(tail[len(tail) - n :]))
                if start is not None:
                    return start, n
        return None


class LookupDrafter:
    """Proposes the continuation of the last match; a match that reaches the end of the text goes on periodically."""

    name = "lookup"

    def __init__(self) -> None:
        self._index = NgramIndex()

    def begin(self, history: Sequence[int]) -> None:
        """Indexes the prompt."""
        self._index = NgramIndex()
        self._index.update(history)

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Up to `limit` tokens."""
        del sampler
        self._index.update(history)
        found = self._index.find(history[-LONGEST:])
        if found is None or limit < 1:
            return NOTHING
        start, match_length = found
        tokens: list[int] = []
        signals: list[Signals] = []
        period = len(history) - start
        for i in range(limit):
            tokens.append(history[start + i] if i < period else tokens[i - period])
            signals.append(Signals(i, self.name, match_length=match_length))
            if not go_on(signals[-1]):
                break
        return Draft(tuple(tokens), (self.name,) * len(tokens), tuple(signals))

    def accepted(self, n: int) -> None:
        """The index follows the history itself."""

    def close(self) -> None:
        """Nothing to free."""
