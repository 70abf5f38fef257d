"""A sampler for a reply that may think: what binds the answer is neither asked nor told while the thought lasts.

The parts' machine forces the tokens that end a thought over its budget. Randomness stays a function of seed, position
and token, and forks go their own way, so drafts change nothing here either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...native.protocol import Logits
from ..sampling import Distribution, TokenSampler
from .parts import Parts


class ThoughtSampler(TokenSampler):
    """As TokenSampler, with `parts`, the state of the reply at its beginning (bound, where there is a constraint).

    `constraint` is None until the answer begins.
    """

    def __init__(self, *args: Any, parts: Parts, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._parts = parts.fork()
        self._waiting, self.constraint = self.constraint, None
        self._bind_answer(self._parts.is_answering)

    def accept(self, token: int) -> None:
        """The token is now history; where the answer begins, what binds it does."""
        parts = self._parts
        self._bind_answer(parts.is_answering or (parts.opener is not None and token != parts.opener))
        super().accept(token)
        parts.accept(token)
        self._bind_answer(parts.is_answering)

    def fork(self) -> ThoughtSampler:
        """A copy for a drafter."""
        made = super().fork()
        assert isinstance(made, ThoughtSampler)
        made._parts = self._parts.fork()
        return made

    def choose(self, row: Logits, position: int) -> int:
        """The forced token, or as TokenSampler; a reply whose answer is bound may open a thought even so."""
        if self._parts.forced is not None:
            return self._parts.forced
        token = super().choose(row, position)
        if not self._is_undecided or token == self._parts.opener:
            return token
        with self._as_answer():
            return super().choose(row, position)

    def distribution(self, row: Logits, position: int) -> Distribution:
        """What `choose` draws from: a point mass at a forced token; an opener keeps its share beside a bound answer."""
        forced = self._parts.forced
        if forced is None and self._is_undecided and self.params.greedy:
            forced = self.choose(row, position)
        if forced is not None:
            return Distribution(np.array([forced], dtype=np.int32), np.ones(1))
        free = super().distribution(row, position)
        if not self._is_undecided:
            return free
        opener = self._parts.opener
        assert opener is not None
        with self._as_answer():
            share, bound = free.probability(opener), super().distribution(row, position)
        ids = np.append(bound.ids, np.int32(opener))
        return Distribution(ids, np.append(bound.probs * (1 - share), share))

    @property
    def plain_greedy(self) -> bool:
        """True when a choice is the argmax of the raw row."""
        return self._parts.forced is None and not self._is_undecided and super().plain_greedy

    @property
    def _is_undecided(self) -> bool:
        """The next token opens a thought, or is the first of an answer that is bound."""
        return self._waiting is not None and self._parts.opener is not None

    @contextlib.contextmanager
    def _as_answer(self) -> Iterator[None]:
        """The next token taken for the answer's."""
        self.constraint = self._waiting
        try:
            yield
        finally:
            self.constraint = None

    def _bind_answer(self, begins: bool) -> None:
        if begins and self._waiting is not None:
            self.constraint, self._waiting = self._waiting.fork(), None
