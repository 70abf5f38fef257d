"""Drafts by a sibling: greedy or sampled token by token, its KV cache kept in step with the history.

Each accepted token is decoded once: accepted draft cells stay. After a fully accepted draft the cache lacks the last
draft token, which the next proposal decodes together with the token that followed it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ContextFullError
from ..native.protocol import Logits
from .draft import NOTHING, Draft, GoOn, Signals
from .kv_cache import KVCache
from .sampling import Distribution, TokenSampler, draw

TRANSPLANT_FROM = 64  # tokens the draft lacks from which copying the target's cells beats decoding them
_DRAFT_STREAM = 0x5EED_D4AF


class ModelDrafter:
    """A sibling on its own KV cache. target: whose cells may be taken over instead of prefilling.

    wants_distributions: record q for the rejection rule. n_vocab: ids at or beyond it are never proposed.
    """

    def __init__(
        self, name: str, cache: KVCache, *, n_vocab: int, target: KVCache | None, wants_distributions: bool = False
    ) -> None:
        self.name = name
        self._cache = cache
        self._target = target
        self._n_vocab = n_vocab
        self._wants_distributions = wants_distributions
        self._n_before = 0
        self._scratch = np.empty(n_vocab, dtype=np.float32)

    def begin(self, history: Sequence[int]) -> None:
        """Reuses the common prefix; a long missing prompt is transplanted from the target, else decoded lazily."""
        self._cache.truncate(min(self._cache.shared_prefix(history), len(history) - 1))
        target = self._target
        if target is None or target.n_past - self._cache.n_past < TRANSPLANT_FROM:
            return
        if target.shared_prefix(history) == target.n_past and self._cache.copy_from(target):
            self._cache.truncate(len(history) - 1)

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Up to `limit` tokens; nothing when its own context is full."""
        limit = min(limit, self._cache.n_ctx - len(history))
        if limit < 1:
            return NOTHING
        self._n_before = len(history)
        tokens: list[int] = []
        signals: list[Signals] = []
        distributions: list[Distribution] = []
        pending: Sequence[int] = history[self._cache.n_past :]
        while True:
            try:
                row = self._cache.extend(pending, 1)[0, : self._n_vocab]
            except ContextFullError:
                break
            token, distribution = self._choose(row, sampler, len(history) + len(tokens))
            tokens.append(token)
            if distribution is not None:
                distributions.append(distribution)
            signals.append(Signals(len(tokens) - 1, self.name, confidence=self._confidence(row, token)))
            if len(tokens) >= limit or token in sampler.eog_tokens or not go_on(signals[-1]):
                break
            sampler.accept(token)
            pending = (token,)
        return Draft(
            tuple(tokens),
            (self.name,) * len(tokens),
            tuple(signals),
            tuple(distributions) if self._wants_distributions else None,
        )

    def accepted(self, n: int) -> None:
        """Keeps the cells of the history and of the n accepted tokens."""
        self._cache.truncate(self._n_before + n)

    def close(self) -> None:
        """The cache belongs to the session."""

    def _choose(self, row: Logits, sampler: TokenSampler, position: int) -> tuple[int, Distribution | None]:
        if sampler.plain_greedy:
            return int(row.argmax()), None
        if not self._wants_distributions or sampler.params.greedy:
            return sampler.choose(row, position), None
        distribution = sampler.distribution(row)
        return draw(distribution, sampler.seed ^ _DRAFT_STREAM, position), distribution

    def _confidence(self, row: Logits, token: int) -> float:
        """softmax(row)[token], without a copy of the row."""
        np.subtract(row, row[token], out=self._scratch)
        np.exp(self._scratch, out=self._scratch)
        return 1.0 / max(float(self._scratch.sum()), 1e-30)
