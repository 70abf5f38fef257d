"""Log-likelihoods of continuations by a sibling's logits: which of several answers it finds likeliest.

Takes a KVCache and token ids, gives nats. Knows no questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...engine.caches.kv_cache import KVCache
from ...errors import UsageError
from ...native.protocol import Logits


def log_likelihoods(
    cache: KVCache, prompt: Sequence[int], continuations: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Sum of log p(token | what precedes it) for each continuation of the prompt, shape (n,), in nats.

    The prompt is decoded once. A continuation has at most the context's max_rows tokens more than one. Raises
    UsageError for an empty continuation, ContextFullError.
    """
    if not all(continuations):
        raise UsageError("a continuation has no tokens; every answer needs at least one")
    first = log_softmax(cache.hold(prompt)[-1:])[0]
    scores = np.array([first[tokens[0]] for tokens in continuations], dtype=np.float64)
    for i, tokens in enumerate(continuations):
        if len(tokens) > 1:
            rows = log_softmax(cache.extend(tokens[:-1], len(tokens) - 1))
            scores[i] += rows[np.arange(len(tokens) - 1), np.asarray(tokens[1:])].sum()
            cache.truncate(len(prompt))
    return scores


def log_softmax(rows: Logits) -> NDArray[np.float64]:
    """Row by row, in double precision."""
    wide = rows.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
