"""Logits to distribution to token: the one place for penalties, bias, truncation, temperature and constraints.

Order and meaning are llama.cpp's (common_sampler): logit bias, penalties, DRY, top-k, typical, top-p, min-p, XTC,
temperature. Randomness is a function of (seed, position, token) and nothing else: choosing is Gumbel-max with hashed
noise. So a seed repeats with and without a draft, rejected tokens leave no trace, and a draft that uses the same noise
proposes what the target will most likely choose (a coupling; the target's distribution is untouched).
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..native.protocol import Logits
from ..native.sampler import Truncation
from ..params import SamplingParams
from .constraint import Constraint

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_XTC_STREAM = 0x58544331  # XTC's coins are others than those of the draw

Ids = NDArray[np.int32]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A sparse distribution over tokens: ids (k,), probs (k,) summing to 1; tokens not listed have probability 0."""

    ids: NDArray[np.int32]
    probs: NDArray[np.float64]

    def probability(self, token: int) -> float:
        """p(token)."""
        return float(self.probs[self.ids == token].sum())


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stable softmax of a vector; -inf becomes 0."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def hashed_uniform(seed: int, position: int, ids: NDArray[Any]) -> NDArray[np.float64]:
    """Uniforms in (0, 1), one per id, from splitmix64 of (seed, position, id). Same shape as ids."""
    with np.errstate(over="ignore"):
        key = np.uint64(seed & 0xFFFFFFFFFFFFFFFF) * _GOLDEN + np.uint64(position)
        key = _splitmix(key + _GOLDEN)
        mixed = _splitmix(key ^ (ids.astype(np.uint64) * _GOLDEN + _MIX_2))
    return np.asarray(((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53, dtype=np.float64)


def _splitmix(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def draw(distribution: Distribution, seed: int, position: int) -> int:
    """One token by Gumbel-max: argmax of log p + Gumbel noise of (seed, position, token)."""
    uniform = hashed_uniform(seed, position, distribution.ids)
    with np.errstate(divide="ignore"):
        scores = np.log(distribution.probs) - np.log(-np.log(uniform))
    return int(distribution.ids[int(scores.argmax())])


class PenaltyWindow:
    """Counts of the last n accepted tokens, as llama_sampler_init_penalties keeps them. n < 0 keeps all."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._recent: deque[int] = deque(maxlen=n if n >= 0 else None)
        self._counts: Counter[int] = Counter()

    def accept(self, token: int) -> None:
        """Takes one accepted token."""
        if self._n == 0:
            return
        if self._n > 0 and len(self._recent) == self._n:
            oldest = self._recent[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._recent.append(token)
        self._counts[token] += 1

    def fork(self) -> PenaltyWindow:
        """A copy with its own history."""
        copy = PenaltyWindow(self._n)
        copy._recent = self._recent.copy()
        copy._counts = self._counts.copy()
        return copy

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids (k,) and counts (k,) of the window."""
        ids = np.fromiter(self._counts.keys(), dtype=np.int64, count=len(self._counts))
        counts = np.fromiter(self._counts.values(), dtype=np.float64, count=len(self._counts))
        return ids, counts


class TokenSampler:
    """Chooses tokens for one request; `accept` tells it each token that became history, prompt included.

    min_tokens: the ids in eog_tokens may not be chosen before so many were. vocab_handle/n_ctx serve DRY.
    Raises UsageError for a logit_bias of a token that the vocabulary has not.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        *,
        constraint: Constraint | None = None,
        eog_tokens: frozenset[int] = frozenset(),
        min_tokens: int = 0,
        vocab_handle: Any = None,
        n_ctx: int = 0,
    ) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self.seed = secrets.randbits(63) if params.seed is None else params.seed
        self.constraint = constraint
        self.n_accepted = 0
        self._min_tokens = min_tokens
        self.eog_tokens = eog_tokens
        self._eog = np.array(sorted(eog_tokens), dtype=np.int64)
        self._window = PenaltyWindow(params.penalty_last_n if params.penalises else 0)
        for token in params.logit_bias:
            if not 0 <= token < n_vocab:
                raise UsageError(f"logit_bias names token {token}; the vocabulary has {n_vocab}, from 0")
        self._chain = Truncation(params, n_vocab, vocab_handle=vocab_handle, n_ctx=n_ctx)
        self._bias_ids = np.array(list(params.logit_bias), dtype=np.int64)
        self._bias = np.array([params.logit_bias[int(t)] for t in self._bias_ids], dtype=np.float32)

    def accept(self, token: int) -> None:
        """The token is now history: penalties, DRY and constraint advance."""
        self.accept_prompt((token,))
        self.n_accepted += 1
        if self.constraint is not None:
            self.constraint.accept(token)

    def accept_prompt(self, tokens: Iterable[int]) -> None:
        """The prompt counts for penalties and DRY, as in llama.cpp's server; a constraint begins after it."""
        if not self.params.shapes_logits:
            return
        for token in tokens:
            self._window.accept(token)
            self._chain.accept(token)

    def fork(self) -> TokenSampler:
        """A copy for a drafter to advance over tokens that may be rejected."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._window = self._window.fork()
        if self._chain.has_state:
            copy._chain = self._chain.fork()
        if self.constraint is not None:
            copy.constraint = self.constraint.fork()
        return copy

    def choose(self, row: Logits, position: int) -> int:
        """The token for `position` (tokens before it) from a row (n_vocab,): argmax, or drawn with hashed noise."""
        with _Shaped(self, row) as shaped:
            if self.constraint is None:
                return self._choose_unconstrained(shaped, position)
            if self.params.greedy:  # what is best of all is best of those allowed; a mask costs more than a question
                token = self._choose_unconstrained(shaped, position)
                if self.constraint.allows(token):
                    return token
            return self._choose_unconstrained(self._masked(shaped, self.constraint), position)

    def distribution(self, row: Logits, position: int) -> Distribution:
        """What `choose` draws from at this position, constraint included; a point mass when greedy."""
        with _Shaped(self, row) as shaped:
            masked = shaped if self.constraint is None else self._masked(shaped, self.constraint)
            if self.params.greedy:
                return Distribution(np.array([self._argmax(masked)], dtype=np.int32), np.ones(1))
            return self._sampled(masked, position)

    def allows(self, token: int) -> bool:
        """Whether the constraint, if there is one, lets the token come next."""
        return self.constraint is None or self.constraint.allows(token)

    @property
    def is_complete(self) -> bool:
        """Whether the constraint lets nothing more come."""
        return self.constraint is not None and self.constraint.is_complete

    @property
    def plain_greedy(self) -> bool:
        """True when a choice is the argmax of the raw row."""
        free = self.constraint is None and not self.bans_eog
        return self.params.greedy and not self.params.shapes_logits and free

    @property
    def bans_eog(self) -> bool:
        """True while min_tokens is not reached."""
        return self.n_accepted < self._min_tokens and self._eog.size > 0

    def _masked(self, row: Logits, constraint: Constraint) -> Logits:
        """The row, masked; where bias or bans forbid all that the constraint allows, the constraint alone decides."""
        masked = constraint.mask(row)
        return masked if np.isfinite(masked.max()) else constraint.mask(np.zeros_like(row))

    def _choose_unconstrained(self, row: Logits, position: int) -> int:
        if self.params.greedy:
            return self._argmax(row)
        return draw(self._sampled(row, position), self.seed, position)

    def _sampled(self, row: Logits, position: int) -> Distribution:
        ids, logits = self._chain.apply(row)
        if self.params.xtc_probability > 0:
            ids, logits = self._without_top_choices(ids, logits, position)
            logits = logits / self.params.temperature
        return Distribution(ids, softmax(logits))

    def _without_top_choices(self, ids: Ids, logits: Values, position: int) -> tuple[Ids, Values]:
        """llama_sample_xtc with a coin of (seed, position): without all tokens above the threshold but the last."""
        coin = float(hashed_uniform(self.seed ^ _XTC_STREAM, position, np.zeros(1, dtype=np.int64))[0])
        above = softmax(logits) >= self.params.xtc_threshold
        if coin > self.params.xtc_probability or above.sum() < 2:
            return ids, logits
        last = np.flatnonzero(above)[int(logits[above].argmin())]
        above[last] = False
        return ids[~above], logits[~above]

    def _argmax(self, row: Logits) -> int:
        if self._chain.keeps_history:
            ids, logits = self._chain.apply(row)
            best = logits == logits.max()
            return int(ids[best].min())
        return int(row.argmax())


class _Shaped:
    """Applies bias, penalties and bans to a few entries of a row in place, and puts them back on exit."""

    def __init__(self, sampler: TokenSampler, row: Logits) -> None:
        self._row = row
        self._sampler = sampler
        self._saved: list[tuple[NDArray[np.int64], Logits]] = []

    def __enter__(self) -> Logits:
        sampler, row = self._sampler, self._row
        self._change(sampler._bias_ids, lambda logits, inside: logits + sampler._bias[inside])
        ids, counts = sampler._window.arrays()
        self._change(ids, lambda logits, inside: penalised(logits, counts[inside], sampler.params))
        if sampler.bans_eog:
            self._change(sampler._eog, lambda logits, _: np.full_like(logits, -np.inf))
        return row

    def __exit__(self, *_: object) -> None:
        for ids, values in reversed(self._saved):
            self._row[ids] = values

    def _change(self, ids: NDArray[np.int64], change: Callable[[Logits, NDArray[np.bool_]], Logits]) -> None:
        """ids beyond the row (a draft with a smaller vocabulary) are left out; `inside` masks the others."""
        if not ids.size:
            return
        inside = ids < self._row.size
        kept = ids[inside]
        before = self._row[kept]
        self._saved.append((kept, before))
        self._row[kept] = change(before, inside)


def penalised(logits: Logits, counts: NDArray[np.float64], params: SamplingParams) -> Logits:
    """Repetition, frequency and presence penalties of tokens seen `counts` times (llama_sampler_penalties_apply)."""
    repeated = np.where(logits <= 0, logits * params.repeat_penalty, logits / params.repeat_penalty)
    out = repeated - counts * params.frequency_penalty - (counts > 0) * params.presence_penalty
    return np.asarray(out, dtype=np.float32)
