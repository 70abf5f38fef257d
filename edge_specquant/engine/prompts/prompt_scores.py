"""Log-probabilities of a prompt's own tokens: what evaluation harnesses ask for. Gives one entry a token.

Takes a cache and token ids. Every token's row is needed, so nothing that the cache holds can be reused. Knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...native.protocol import Logits
from ..caches.kv_cache import KVCache, OnProgress
from ..events import PromptToken, TokenLogprobs


def score_prompt(
    cache: KVCache, prompt: Sequence[int], n_top: int, progress: OnProgress | None = None
) -> tuple[tuple[PromptToken, ...], Logits]:
    """(each token with its log-probability, the logits of the last one (1, n_vocab), a view); the cache holds it all.

    Nothing precedes the first token, so it has no log-probability. Raises what KVCache.extend raises.
    """
    cache.truncate(0)
    scored = [PromptToken(prompt[0], None)]
    n_chunk = min(cache.context.max_rows - (cache.min_width - 1), cache.max_width or cache.context.n_batch)
    rows = np.empty((0, 0), dtype=np.float32)
    for start in range(0, len(prompt), n_chunk):
        chunk = prompt[start : start + n_chunk]
        rows = cache.extend(chunk, len(chunk))
        for row, token in zip(rows, prompt[start + 1 : start + n_chunk + 1], strict=False):
            scored.append(PromptToken(token, raw_logprobs(row, token, n_top)))
        if progress:
            progress(start + len(chunk), len(prompt))
    return tuple(scored), rows[-1:]


def raw_logprobs(row: Logits, token: int, n_top: int) -> TokenLogprobs:
    """Log-softmax of the row (n_vocab,) at the token, and its n_top best; nobody drew it: processed is the same."""
    shifted = row.astype(np.float64) - float(row.max())
    log_total = float(np.log(np.exp(shifted).sum()))
    best = np.argpartition(-row, min(n_top, row.size - 1))[:n_top]
    best = best[np.argsort(-row[best], kind="stable")]
    logprob = float(shifted[token]) - log_total
    return TokenLogprobs(logprob, logprob, tuple((int(t), float(shifted[t]) - log_total) for t in best))
