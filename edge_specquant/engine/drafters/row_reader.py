"""Draft tokens read off rows of logits, with what is known of each: for drafters that have a model of their own.

Knows nothing of caches or of where the rows come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...native.protocol import Logits
from ..sampling import Distribution, TokenSampler, draw
from ..signals import Signals
from .draft import Draft

_DRAFT_STREAM = 0x5EED_D4AF


@dataclass(slots=True)
class Made:
    """A draft in the making."""

    tokens: list[int] = field(default_factory=list)
    signals: list[Signals] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    finished: bool = False


class RowReader:
    """wants_distributions: record q for the rejection rule; wants_entropy: for controllers that ask for it."""

    def __init__(self, name: str, n_vocab: int, *, wants_distributions: bool, wants_entropy: bool) -> None:
        self.name = name
        self.wants_distributions = wants_distributions
        self._wants_entropy = wants_entropy
        self._scratch = np.empty(n_vocab, dtype=np.float32)

    def take(self, row: Logits, made: Made, sampler: TokenSampler, position: int) -> int:
        """Reads one draft token off a row."""
        token, distribution = self._choose(row, sampler, position)
        made.tokens.append(token)
        if distribution is not None:
            made.distributions.append(distribution)
        made.signals.append(self._signals(row, token, len(made.tokens) - 1))
        return token

    def draft(self, made: Made, n_behind: int | None) -> Draft:
        """What was read, as a draft."""
        distributions = tuple(made.distributions) if self.wants_distributions else None
        return Draft(tuple(made.tokens), (self.name,) * len(made.tokens), tuple(made.signals), distributions, n_behind)

    def _choose(self, row: Logits, sampler: TokenSampler, position: int) -> tuple[int, Distribution | None]:
        if sampler.plain_greedy:
            return int(row.argmax()), None
        if not self.wants_distributions or sampler.params.greedy:
            return sampler.choose(row, position), None
        distribution = sampler.distribution(row, position)
        return draw(distribution, sampler.seed ^ _DRAFT_STREAM, position), distribution

    def _signals(self, row: Logits, token: int, position: int) -> Signals:
        """Confidence (softmax of the row at the token) and, where wanted, the entropy; the row is not copied."""
        shifted = np.subtract(row, row.max(), out=self._scratch[: row.size])
        chosen = float(shifted[token])
        if not self._wants_entropy:
            total = float(np.exp(shifted, out=shifted).sum())
            return Signals(position, self.name, confidence=float(np.exp(chosen)) / total)
        weights = np.exp(shifted)
        total = float(weights.sum())
        entropy = float(np.log(total) - np.dot(weights, np.maximum(shifted, -1e4)) / total)
        return Signals(position, self.name, confidence=float(np.exp(chosen)) / total, entropy=max(0.0, entropy))
