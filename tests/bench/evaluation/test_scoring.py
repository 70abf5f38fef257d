"""Log-likelihoods by the cache equal the sum over single steps and leave the cache at the prompt."""

from __future__ import annotations

import numpy as np
import pytest

from edge_specquant.bench.evaluation.scoring import log_likelihoods, log_softmax
from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.errors import UsageError
from edge_specquant.native.fake import FakeModel, hashed
from edge_specquant.native.protocol import ContextParams

PROMPT = [5, 6, 7, 8]


def _cache() -> tuple[KVCache, FakeModel]:
    model = FakeModel(hashed(3))
    return KVCache(model.context(ContextParams(n_ctx=128, n_batch=32, max_rows=16))), model


def _by_hand(model: FakeModel, tokens: list[int]) -> float:
    history, total = list(PROMPT), 0.0
    for token in tokens:
        total += log_softmax(np.asarray(model.next_logits(history), dtype=np.float32)[None])[0, token]
        history.append(token)
    return total


def test_scores_are_sums_over_steps() -> None:
    cache, model = _cache()
    answers = [[10], [11, 12], [13, 14, 15, 16], [10]]
    scores = log_likelihoods(cache, PROMPT, answers)
    assert scores == pytest.approx([_by_hand(model, tokens) for tokens in answers], rel=1e-6)
    assert cache.tokens == PROMPT
    assert log_likelihoods(cache, PROMPT, answers) == pytest.approx(scores)


def test_an_empty_answer_is_refused() -> None:
    with pytest.raises(UsageError, match="no tokens"):
        log_likelihoods(_cache()[0], PROMPT, [[1], []])


def test_log_softmax_sums_to_one_far_from_zero() -> None:
    rows = np.array([[1e4, 1e4 - 1, -1e4], [0, 0, 0]], dtype=np.float32)
    assert np.exp(log_softmax(rows)).sum(axis=1) == pytest.approx([1, 1])
