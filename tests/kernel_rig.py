"""What the tests of the kernel share: activations as it sees them, and Q4_0 blocks in the engine's repacked orders."""

from __future__ import annotations

import numpy as np

from edge_specquant.native.kernel import Weights
from edge_specquant.native.nested_planes import grouped


def seen(kind: str, x: np.ndarray) -> np.ndarray:
    """Activations as the kernel sees them: as they are beside halves, else 8-bit codes with a scale for 32."""
    if kind == "f16":
        return x.astype(np.float64)
    blocks = x.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.rint(blocks * (np.float32(1) / scale))
    return (codes.astype(np.float64) * scale).reshape(x.shape)


def in_layout(weights: Weights, layout: int) -> Weights:
    """The same weights in another order."""
    return Weights(weights.kind, _laid_out(weights.data, layout), weights.values, weights.residual, layout)


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
