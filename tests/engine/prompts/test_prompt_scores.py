"""Scores of a prompt are those of one decode with all rows, whatever the chunks; the cache then holds the prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.engine.prompts.prompt_scores import score_prompt
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams

ROUNDING = 0.15  # between widths, for a random model; a neighbouring token is off by several


@pytest.mark.parametrize("widths", [(1, None), (4, 16)])
def test_scores_do_not_depend_on_chunks(tiny_gguf: Path, widths: tuple[int, int | None]) -> None:
    prompt = np.random.default_rng(5).integers(3, 250, 50).tolist()
    with NativeModel(tiny_gguf, use_extra_bufts=True) as model:
        with model.context(ContextParams(n_ctx=128, max_rows=64, n_threads=1)) as whole:
            rows = whole.decode(prompt, 0, len(prompt)).astype(np.float64)
        wanted = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
        with model.context(ContextParams(n_ctx=128, max_rows=8, n_batch=16, n_threads=1)) as context:
            cache = KVCache(context)
            cache.keep_widths(*widths)
            cache.hold(prompt[:9])
            done: list[tuple[int, int]] = []
            scored, last = score_prompt(cache, prompt, 2, lambda n, of: done.append((n, of)))
            assert cache.tokens == prompt and done[-1] == (50, 50)
            np.testing.assert_allclose(last[0], rows[-1], atol=ROUNDING)
    assert [each.token_id for each in scored] == prompt and scored[0].logprobs is None
    for i, each in enumerate(scored[1:]):
        assert each.logprobs is not None
        assert each.logprobs.logprob == pytest.approx(wanted[i, prompt[i + 1]], abs=ROUNDING)
        assert each.logprobs.top[0][1] == pytest.approx(wanted[i].max(), abs=ROUNDING)
