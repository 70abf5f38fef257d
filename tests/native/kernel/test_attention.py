"""The kernel's attention: numpy's, and the same bits beside any queries, before any cells, by any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from edge_specquant.native.kernel import LEVELS, kernel
from edge_specquant.native.kernel.proof import as_q8_0, attend, attention

KERNEL = kernel()
pytestmark = pytest.mark.skipif(isinstance(KERNEL, str), reason=str(KERNEL))
HERE = [] if isinstance(KERNEL, str) else [n for n in range(1, len(LEVELS)) if KERNEL.library.esq_has_level(n)]
SHAPES = {  # queries, heads, heads of the cache, size of a key, size of a value, cells
    "one query": (1, 14, 2, 64, 64, 256),
    "a verification": (6, 14, 2, 64, 64, 512),
    "a head for each": (3, 6, 6, 96, 96, 48),
    "large heads": (2, 4, 1, 256, 128, 32),
    "odd keys": (17, 6, 2, 80, 64, 112),
    "a prompt": (65, 8, 2, 128, 128, 160),
}
Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]


@pytest.fixture(params=list(SHAPES.values()), ids=list(SHAPES))
def case(request: pytest.FixtureRequest) -> Case:
    n, heads, kv_heads, size, n_values, n_cells = request.param
    rng = np.random.default_rng(n)
    q = rng.normal(0, 1, (n, heads, size)).astype(np.float32)
    k = rng.normal(0, 1, (n_cells, kv_heads, size)).astype(np.float16)
    v = rng.normal(0, 1, (n_cells, kv_heads, n_values)).astype(np.float16)
    seen = np.arange(n_cells) <= n_cells - n - 5 + np.arange(n)[:, None]
    return q, k, v, _mask(seen), size**-0.5


def _mask(seen: np.ndarray) -> np.ndarray:
    return np.where(seen, 0, -np.inf).astype(np.float16)


def _attend(level: int, case: Case, n_threads: int = 1) -> np.ndarray:
    assert not isinstance(KERNEL, str)
    found = attend(KERNEL.library, level, *case, n_threads=n_threads)
    assert found is not None
    return found


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
def test_it_is_numpys(level: int, case: Case) -> None:
    assert np.abs(_attend(level, case) - attention(*case)).max() < 2e-6


@pytest.mark.parametrize("case", [shape for shape in SHAPES.values() if shape[3] % 32 == 0], indirect=True)
@pytest.mark.parametrize("quantized", ["keys", "values", "both"])
@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
def test_a_quantized_cache_counts_as_what_its_blocks_stand_for(level: int, case: Case, quantized: str) -> None:
    q, k, v, mask, scale = case
    (packed_k, exact_k), (packed_v, exact_v) = as_q8_0(k), as_q8_0(v)
    if quantized == "keys":
        packed_v, exact_v = v, v
    elif quantized == "values":
        packed_k, exact_k = k, k
    found = _attend(level, (q, packed_k, packed_v, mask, scale))
    assert np.abs(found - attention(q, exact_k, exact_v, mask, scale)).max() < 2e-6
    assert np.array_equal(_attend(level, (q[:1], packed_k, packed_v, mask[:1], scale)), found[:1])


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
def test_a_query_has_the_same_bits_alone_and_with_others(level: int, case: Case) -> None:
    q, k, v, mask, scale = case
    together = _attend(level, case)
    for i in range(len(q)):
        assert np.array_equal(_attend(level, (q[i : i + 1], k, v, mask[i : i + 1], scale)), together[i : i + 1])


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
def test_cells_that_nobody_sees_and_threads_change_no_bit(level: int, case: Case) -> None:
    q, k, v, mask, scale = case
    more = np.full((16, *k.shape[1:]), 7, np.float16), np.full((16, *v.shape[1:]), 9, np.float16)
    longer = np.concatenate((mask, np.full((len(q), 16), -np.inf, np.float16)), axis=1)
    expected = _attend(level, case)
    found = _attend(level, (q, np.concatenate((k, more[0])), np.concatenate((v, more[1])), longer, scale), n_threads=64)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
def test_holes_windows_and_queries_that_see_nothing(level: int) -> None:
    rng = np.random.default_rng(5)
    q = rng.normal(0, 1, (5, 4, 64)).astype(np.float32)
    k, v = rng.normal(0, 1, (2, 96, 2, 64)).astype(np.float16)
    seen = rng.random((5, 96)) < 0.2
    seen[:, 32:64] = False  # whole blocks out of sight
    seen[1], seen[3] = False, np.arange(96) == 95
    expected = attention(q, k, v, _mask(seen), 0.125)
    k[~seen.any(axis=0)] = v[~seen.any(axis=0)] = np.nan  # what nobody sees may be anything
    found = _attend(level, (q, k, v, _mask(seen), 0.125))
    assert np.abs(found - expected).max() < 2e-6
    assert not found[1].any()
    assert np.array_equal(found[3], np.repeat(v[95].astype(np.float32), 2, axis=0))


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
def test_extreme_scores_stay_finite(level: int) -> None:
    q = np.full((1, 2, 64), 300, np.float32)
    k, v = np.full((32, 2, 64), 300, np.float16), np.ones((32, 2, 64), np.float16)
    k[1::2] = -300
    found = _attend(level, (q, k, v, np.zeros((1, 32), np.float16), 1.0))
    assert np.array_equal(found, np.ones_like(found))


def test_sizes_without_code_are_left_to_the_engine() -> None:
    assert not isinstance(KERNEL, str)
    q, k = np.zeros((1, 2, 72), np.float32), np.zeros((32, 2, 72), np.float16)
    assert attend(KERNEL.library, HERE[0], q, k, k, np.zeros((1, 32), np.float16), 1.0) is None
    assert attend(KERNEL.library, 0, q[..., :64], k[..., :64], k[..., :64], np.zeros((1, 32), np.float16), 1.0) is None
