"""What the tests of the kernel share: activations as it sees them, and Q4_0 blocks in the engine's repacked orders."""

from __future__ import annotations

import numpy as np

from edge_specquant.native.kernel.nested_planes import grouped
from edge_specquant.native.kernel.proof import (
    FORMATS,
    Weights,
    random_f16,
    random_nested,
    random_q4_0,
    random_q4_k,
    random_q8_0,
)

MAKERS = dict(zip(FORMATS, (random_nested, random_q8_0, random_f16, random_q4_k, random_q4_0), strict=True))
LAYOUTS = [(kind, layout) for kind in ("nested", "q4_0") for layout in range(4)]
LAYOUTS += [("q8_0", 0), ("f16", 0), ("q4_k", 0), ("q4_k", 1)]


def columns(kind: str) -> int:
    """An odd number of blocks, as wide as the format allows."""
    return 3 * 256 if kind == "q4_k" else 5 * 32


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
    arrange = _q4_k_laid_out if weights.kind == "q4_k" else _laid_out
    return Weights(weights.kind, arrange(weights.data, layout), weights.values, weights.residual, layout)


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


def _q4_k_laid_out(data: np.ndarray, layout: int) -> np.ndarray:
    """Q4_K superblocks as rows or as the engine's groups of eight rows: d, dmin, scales by block, nibbles by eights."""
    if layout == 0:
        return data
    n_rows, n_supers = data.shape[:2]
    groups = data.reshape(n_rows // 8, 8, n_supers, 144).transpose(0, 2, 1, 3)
    units = groups[..., :4].reshape(*groups.shape[:2], 8, 2, 2).transpose(0, 1, 3, 2, 4)
    both = _packed(
        _unpacked(groups[..., 4:16]).transpose(0, 1, 4, 3, 2)
    )  # a block's rows in the place of a row's blocks
    nibbles = groups[..., 16:].reshape(*groups.shape[:3], 16, 8).transpose(0, 1, 3, 2, 4)
    parts = (units, both, nibbles)
    return np.concatenate([part.reshape(*groups.shape[:2], -1) for part in parts], axis=2)


def _unpacked(packed: np.ndarray) -> np.ndarray:
    """12 bytes -> scales and minima of 8 blocks, shape (..., 2, 8)."""
    a, b, c = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate((a & 63, c & 15 | a >> 6 << 4), axis=-1)
    return np.stack((scales, np.concatenate((b & 63, c >> 4 | b >> 6 << 4), axis=-1)), axis=-2)


def _packed(values: np.ndarray) -> np.ndarray:
    """The other way; values (..., 8 blocks, 2, 8 rows)."""
    scales, minima = values[..., 0, :], values[..., 1, :]
    high = scales[..., 4:] & 15 | (minima[..., 4:] & 15) << 4
    tops = [each[..., :4] | each[..., 4:] >> 4 << 6 for each in (scales, minima)]
    return np.concatenate((*tops, high), axis=-1)
