"""Measures how siblings agree with a reference model: its own greedy reply, judged token by token by each of them.

Takes opened models and prompt tokens, gives agreement, KL divergence and seconds a token. Every model is asked in one
batched decode with the reference's text before each position (teacher forcing), so that one early difference does not
spoil the rest. Knows nothing of routes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ...engine.caches.kv_cache import KVCache
from ...errors import ContextFullError
from ...native.protocol import DEFAULT_N_BATCH, ContextParams, Logits, Model

N_TIMED_STEPS = 6
Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """One sibling on one reply: agreement 0 to 1, kld in nats (mean over the reply), seconds a token."""

    agreement: float
    kld: float
    prefill_s_per_token: float
    decode_s_per_token: float


@dataclass(frozen=True, slots=True)
class PromptAgreement:
    """The reference's reply and every sibling's verdict on it, the reference's own included."""

    reply: tuple[int, ...]
    siblings: Mapping[str, Agreement]


class AgreementMeter:
    """One context for each model. Close it before the models."""

    def __init__(
        self, models: Mapping[str, Model], reference: str, *, n_reply: int, n_ctx: int = 2048, n_threads: int = 0
    ) -> None:
        self._reference = reference
        self._n_reply = n_reply
        self._eog = models[reference].vocab.eog_tokens
        params = ContextParams(n_ctx=n_ctx, n_batch=min(DEFAULT_N_BATCH, n_ctx), max_rows=n_reply, n_threads=n_threads)
        self._contexts = {name: model.context(params) for name, model in models.items()}
        self._caches = {name: KVCache(context) for name, context in self._contexts.items()}

    def __enter__(self) -> AgreementMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for context in self._contexts.values():
            context.close()

    def measure(self, prompt: Sequence[int]) -> PromptAgreement:
        """Raises ContextFullError when prompt and reply do not fit the context."""
        cache = self._caches[self._reference]
        if len(prompt) + self._n_reply > cache.n_ctx:
            raise ContextFullError(
                f"the prompt has {len(prompt)} tokens, the reply up to {self._n_reply}; the context holds {cache.n_ctx}"
            )
        reply = self._greedy_reply(cache, prompt)
        expected, rates = self._judge(self._reference, prompt, reply)
        wanted = _log_softmax(expected)
        found = {self._reference: _compare(wanted, wanted, rates)}
        for name in self._caches:
            if name != self._reference:
                rows, rates = self._judge(name, prompt, reply)
                found[name] = _compare(wanted, _log_softmax(rows), rates)
        return PromptAgreement(tuple(reply), found)

    def _greedy_reply(self, cache: KVCache, prompt: Sequence[int]) -> list[int]:
        cache.truncate(0)
        rows = cache.extend(prompt)
        reply = [int(rows[-1].argmax())]
        while len(reply) < self._n_reply and reply[-1] not in self._eog:
            reply.append(int(cache.extend(reply[-1:])[-1].argmax()))
        return reply

    def _judge(self, name: str, prompt: Sequence[int], reply: list[int]) -> tuple[Logits, tuple[float, float]]:
        """(rows that predict each token of the reply, (prefill, decode) seconds a token); the rows stay valid."""
        cache = self._caches[name]
        forced = [*prompt, *reply[:-1]]
        cache.truncate(0)
        start = time.perf_counter()
        rows = cache.extend(forced, len(reply)).copy()
        prefill_s = (time.perf_counter() - start) / len(forced)
        return rows, (prefill_s, _step_seconds(cache, len(prompt), reply))


def _step_seconds(cache: KVCache, n_prompt: int, reply: list[int]) -> float:
    """Median seconds of decoding one token after the prompt."""
    cache.truncate(n_prompt)
    steps = []
    for token in (reply * N_TIMED_STEPS)[:N_TIMED_STEPS]:
        start = time.perf_counter()
        cache.extend([token])
        steps.append(time.perf_counter() - start)
    return statistics.median(steps)


def _compare(wanted: Rows, found: Rows, rates: tuple[float, float]) -> Agreement:
    same = wanted.argmax(axis=1) == found.argmax(axis=1)
    kld = float((np.exp(wanted) * (wanted - found)).sum(axis=1).mean())
    return Agreement(float(same.mean()), max(0.0, kld), *rates)


def _log_softmax(rows: Logits) -> Rows:
    shifted = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
