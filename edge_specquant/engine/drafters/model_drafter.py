"""Drafts by a sibling: greedy or sampled token by token, its KV cache kept in step with the history.

Each accepted token is decoded once: accepted draft cells stay. After a fully accepted draft the cache lacks the last
draft token, which the next proposal decodes together with the token that followed it. A draft may itself be sped up by
lookup (a cascade): guesses copied from the text ride along in its batch and stand where the draft agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import ContextFullError
from ..caches.kv_cache import KVCache
from ..sampling import TokenSampler
from ..signals import Offer
from .draft import NOTHING, Draft, GoOn
from .lookup import NgramIndex
from .row_reader import Made, RowReader

# Copying all of the target's cells takes about as long as decoding one more token of the draft for every 128 of them
# (0.5B: 0.1 ms for 40 cells, 3 to 27 ms for 1,024; four tokens instead of one cost 6 ms, 32 cost 55).
_TRANSPLANT_FROM = 3
_CELLS_COPIED_A_TOKEN = 128

RideAlong = Callable[[int], int]
"""Length of a lookup's match -> how many guesses to send along; from measured cost."""


class ModelDrafter:
    """A sibling on its own KV cache. target: whose cells may be taken over instead of prefilling.

    wants_distributions: record q for the rejection rule. n_vocab: ids at or beyond it are never proposed.
    wants_entropy: measure it for controllers that ask for it. ride_along: how many lookup guesses to try per step.
    """

    def __init__(
        self,
        name: str,
        cache: KVCache,
        *,
        n_vocab: int,
        target: KVCache | None,
        wants_distributions: bool = False,
        wants_entropy: bool = False,
        ride_along: RideAlong | None = None,
    ) -> None:
        self.name = name
        self._cache = cache
        self._target = target
        self._n_vocab = n_vocab
        self._reader = RowReader(name, n_vocab, wants_distributions=wants_distributions, wants_entropy=wants_entropy)
        self._ride_along = None if wants_distributions else ride_along
        self._index = NgramIndex()
        self._n_before = 0

    @property
    def decode_s(self) -> float:
        """Seconds spent in forwards so far."""
        return self._cache.decode_s

    def begin(self, history: Sequence[int]) -> None:
        """Keeps the common prefix of its cells; what is missing is made up for when a draft is asked for."""
        self._cache.truncate(min(self._cache.shared_prefix(history), len(history) - 1))
        self._index = NgramIndex()

    def offer(self, history: Sequence[int]) -> Offer | None:
        """Always something, until its context is full."""
        n_max = self._cache.n_ctx - len(history)
        if n_max < 1:
            return None
        behind = len(history) - self._cache.n_past
        return Offer(self.name, n_max, n_behind=1 if self._may_transplant(behind) else behind)

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Up to `limit` tokens; nothing when its own context is full."""
        limit = min(limit, self._cache.n_ctx - len(history))
        if limit < 1:
            return NOTHING
        copied = self._catch_up(history)
        n_behind = None if copied else len(history) - self._cache.n_past
        self._cache.brace()
        if self._ride_along is not None:
            self._index.update(history)
        self._n_before = len(history)
        made = Made()
        text = [*history]
        while not made.finished:
            guesses = self._guesses(text, limit - len(made.tokens) - 1, sampler)
            try:
                rows = self._cache.extend([*text[self._cache.n_past :], *guesses], 1 + len(guesses))
            except ContextFullError:
                break
            for row, guess in zip(rows[:, : self._n_vocab], (*guesses, None), strict=True):
                token = self._reader.take(row, made, sampler, len(text))
                text.append(token)
                done = len(made.tokens) >= limit or token in sampler.eog_tokens or not sampler.allows(token)
                made.finished = done or not go_on(made.signals[-1])
                if made.finished:
                    break
                sampler.accept(token)
                made.finished = sampler.is_complete
                if token != guess or made.finished:
                    break
            self._cache.truncate(len(text) - 1)  # the last token was never decoded; disagreed guesses go
        return self._reader.draft(made, n_behind)

    def accepted(self, n: int) -> None:
        """Keeps the cells of the history and of the n accepted tokens."""
        self._cache.truncate(self._n_before + n)

    def close(self) -> None:
        """The cache belongs to the session."""

    # -- one step ---------------------------------------------------------------------------------------------------

    def _guesses(self, text: Sequence[int], room: int, sampler: TokenSampler) -> list[int]:
        """What the form forces, else what a lookup would copy, as far as the measured cost of riding along allows."""
        room = min(room, self._cache.context.max_rows - 1)
        if room < 1 or not self._cache.context.can_truncate:
            return []
        forced = () if sampler.constraint is None or self._reader.wants_distributions else sampler.constraint.forced()
        if forced:
            return [token for token in forced[:room] if token < self._n_vocab]
        if self._ride_along is None:
            return []
        found = self._index.find(text)
        if found is None:
            return []
        start, match_length = found
        n = min(self._ride_along(match_length), room)
        return [token for token in text[start : start + n] if token < self._n_vocab]

    def _catch_up(self, history: Sequence[int]) -> bool:
        """Takes the target's cells over where the draft is far behind, and says so; it decodes the rest itself.

        The last token is always decoded anew: a round that ends on an accepted token leaves its cell here.
        """
        self._cache.truncate(len(history) - 1)
        target = self._target
        if target is None or not self._may_transplant(len(history) - self._cache.n_past):
            return False
        copied = self._cache.copy_from(target)
        self._cache.truncate(len(history) - 1)
        return copied

    def _may_transplant(self, behind: int) -> bool:
        """Whether copying the target's cells beats decoding so many tokens."""
        if self._target is None:
            return False
        return behind >= _TRANSPLANT_FROM + self._target.n_past // _CELLS_COPIED_A_TOKEN
