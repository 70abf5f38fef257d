"""Drafts copied from what was already said: the longest match of the last tokens in prompt and output, recent first.

Costs nothing but dictionary look-ups, whatever the context length (prompt lookup decoding; llama.cpp examples/lookup).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sampling import TokenSampler
from ..signals import Offer, Signals
from .draft import NOTHING, Draft, GoOn

LONGEST_KEY, SHORTEST_KEY = 4, 2
LONGEST_MATCH = 32  # how far back a match is measured; longer ones are as good


class NgramIndex:
    """Where each n-gram of a growing history was last followed by something."""

    def __init__(self) -> None:
        self._follows: dict[tuple[int, ...], int] = {}
        self._n_seen = 0

    def update(self, history: Sequence[int]) -> None:
        """Indexes what was appended since the last call; n-grams that end at the last token wait for a successor."""
        for end in range(max(self._n_seen, 1), len(history)):
            for n in range(SHORTEST_KEY, LONGEST_KEY + 1):
                if end >= n:
                    self._follows[tuple(history[end - n : end])] = end
        self._n_seen = max(self._n_seen, len(history))

    def find(self, history: Sequence[int]) -> tuple[int, int] | None:
        """(where the continuation starts, length of the match) for the longest known suffix of the history."""
        tail = history[-LONGEST_KEY:]
        for n in range(min(LONGEST_KEY, len(tail)), SHORTEST_KEY - 1, -1):
            start = self._follows.get(tuple(tail[len(tail) - n :]))
            if start is not None:
                return start, _match_length(history, start, n)
        return None


def _match_length(history: Sequence[int], start: int, known: int) -> int:
    n, end = known, len(history)
    while n < min(LONGEST_MATCH, start) and history[start - 1 - n] == history[end - 1 - n]:
        n += 1
    return n


class LookupDrafter:
    """Proposes the continuation of the last match; a match that reaches the end of the text goes on periodically."""

    name = "lookup"
    decode_s = 0.0

    def __init__(self) -> None:
        self._index = NgramIndex()
        self._found: tuple[int, int] | None = None
        self._found_at = -1

    def begin(self, history: Sequence[int]) -> None:
        """Indexes the prompt."""
        self._index = NgramIndex()
        self._index.update(history)
        self._found_at = -1

    def offer(self, history: Sequence[int]) -> Offer | None:
        """A match, if there is one."""
        found = self._find(history)
        return None if found is None else Offer(self.name, LONGEST_MATCH * 2, match_length=found[1])

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Up to `limit` tokens; where the reply must have a form, none behind the first that it forbids."""
        found = self._find(history)
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
        if sampler.constraint is not None:
            n = sampler.constraint.validate(tokens)
            tokens, signals = tokens[:n], signals[:n]
        return Draft(tuple(tokens), (self.name,) * len(tokens), tuple(signals))

    def accepted(self, n: int) -> None:
        """The index follows the history itself."""

    def close(self) -> None:
        """Nothing to free."""

    def _find(self, history: Sequence[int]) -> tuple[int, int] | None:
        """The match at the end of this history, looked for once."""
        if self._found_at != len(history):
            self._index.update(history)
            self._found, self._found_at = self._index.find(history), len(history)
        return self._found
