"""The kernel's products: every format, layout and instruction set gives numpy's sums; no width changes a bit."""

from __future__ import annotations

import numpy as np
import pytest

from edge_specquant.native.kernel import (
    FORMATS,
    Weights,
    kernel,
    multiply,
    random_f16,
    random_nested,
    random_q8_0,
)
from edge_specquant.native.nested_planes import grouped

KERNEL = kernel()
pytestmark = pytest.mark.skipif(isinstance(KERNEL, str), reason=str(KERNEL))
MAKERS = dict(zip(FORMATS, (random_nested, random_q8_0, random_f16), strict=True))
LAYOUTS = [("nested", layout) for layout in range(4)] + [("q8_0", 0), ("f16", 0)]


def _level(level: int) -> tuple[object, int]:
    assert not isinstance(KERNEL, str)
    if level > KERNEL.library.esq_best_level():
        pytest.skip("not on this processor")
    return KERNEL.library, level


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_every_instruction_set_reads_every_format(level: int, kind: str, layout: int) -> None:
    library, level = _level(level)
    rng = np.random.default_rng(layout)
    weights = MAKERS[kind](rng, 24, 160)
    laid_out = Weights(kind, _laid_out(weights.data, layout), weights.values, weights.residual, layout)
    x = rng.normal(0, 1, (43, 160)).astype(np.float32)
    seen = x.astype(np.float64) if kind == "f16" else _rounded(x)
    expected = seen @ weights.values.T
    assert np.abs(multiply(library, level, laid_out, x) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_is_the_same_bits_at_every_width(level: int, kind: str) -> None:
    library, level = _level(level)
    rng = np.random.default_rng(3)
    weights = MAKERS[kind](rng, 16, 224)
    x = rng.normal(0, 1, (40, 224)).astype(np.float32)
    alone = np.concatenate([multiply(library, level, weights, x[i : i + 1]) for i in range(40)])
    for n in range(2, 41):
        assert np.array_equal(multiply(library, level, weights, x[:n]), alone[:n])


def _rounded(x: np.ndarray) -> np.ndarray:
    """Activations as the kernel sees them: 8-bit codes with a scale for 32."""
    blocks = x.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.rint(blocks * (np.float32(1) / scale))
    return (codes.astype(np.float64) * scale).reshape(x.shape)


def _laid_out(base: np.ndarray, layout: int) -> np.ndarray:
    """Q4_0 blocks in the orders of the engine's repacked buffers: rows, 8x8, 4x8, 4x4."""
    if layout == 0:
        return base
    n_rows, n_blocks = base.shape[:2]
    rows, chunk = {1: (8, 8), 2: (4, 8), 3: (4, 4)}[layout]
    groups = base.reshape(n_rows // rows, rows, n_blocks, 18)
    scales = groups[..., :2].transpose(0, 2, 1, 3).reshape(-1, n_blocks, 2 * rows)
    codes = (groups[..., 2:] ^ 0x88).reshape(n_rows // rows, rows, n_blocks, 16 // chunk, chunk)
    codes = codes.transpose(0, 2, 3, 1, 4).reshape(-1, n_blocks, 16 * rows)
    if layout == 1:
        assert np.array_equal(codes.ravel(), grouped(base[..., 2:] ^ 0x88).ravel())
    return np.concatenate((scales, codes), axis=2)
