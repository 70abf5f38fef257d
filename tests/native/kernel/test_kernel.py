"""The kernel's products: every format, layout and instruction set gives numpy's sums; no width changes a bit."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_rig import LAYOUTS, MAKERS, columns, in_layout, seen

from edge_specquant.native.kernel import LEVELS, kernel
from edge_specquant.native.kernel.proof import FORMATS, multiply

KERNEL = kernel()
pytestmark = pytest.mark.skipif(isinstance(KERNEL, str), reason=str(KERNEL))


HERE = [] if isinstance(KERNEL, str) else [n for n in range(len(LEVELS)) if KERNEL.library.esq_has_level(n)]


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_every_instruction_set_reads_every_format(level: int, kind: str, layout: int) -> None:
    assert not isinstance(KERNEL, str)
    rng, n_cols = np.random.default_rng(layout), columns(kind)
    weights = in_layout(MAKERS[kind](rng, 24, n_cols), layout)
    x = rng.normal(0, 1, (43, n_cols)).astype(np.float32)
    expected = seen(kind, x) @ weights.values.T
    assert np.abs(multiply(KERNEL.library, level, weights, x) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_is_the_same_bits_at_every_width(level: int, kind: str) -> None:
    assert not isinstance(KERNEL, str)
    rng, n_cols = np.random.default_rng(3), columns(kind)
    weights = MAKERS[kind](rng, 16, n_cols)
    x = rng.normal(0, 1, (40, n_cols)).astype(np.float32)
    alone = np.concatenate([multiply(KERNEL.library, level, weights, x[i : i + 1]) for i in range(40)])
    for n in range(2, 41):
        assert np.array_equal(multiply(KERNEL.library, level, weights, x[:n]), alone[:n])


@pytest.mark.parametrize("level", HERE, ids=LEVELS.__getitem__)
@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_rows_too_long_for_the_cache_are_read_as_well(level: int, kind: str, layout: int) -> None:
    assert not isinstance(KERNEL, str)
    rng, n_cols = np.random.default_rng(layout), 4096
    weights = in_layout(MAKERS[kind](rng, 24, n_cols), layout)
    x = rng.normal(0, 1, (9, n_cols)).astype(np.float32)
    together = multiply(KERNEL.library, level, weights, x)
    expected = seen(kind, x) @ weights.values.T
    assert np.abs(together - expected).max() <= 1e-5 * np.abs(expected).max()
    assert np.array_equal(multiply(KERNEL.library, level, weights, x[:1]), together[:1])
