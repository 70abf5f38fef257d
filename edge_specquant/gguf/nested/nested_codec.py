"""Weights in two nested planes: a 4-bit base that is an ordinary Q4_0 tensor, and the residual that refines it.

Takes and gives numpy arrays. The tied residual shares the base's scale: with scale d and codes q, r of 0..15 it is
d / 16 * (16 q + r - 136), one 8-bit integer, at 8.5 bits a weight for both. The free residual is a GGUF quantization of
what the base leaves, with scales of its own. Knows nothing of files.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...native.kernel.nested_planes import BASE_BLOCK_BYTES, BLOCK

_CENTRE = 136  # 16 q + r of a weight that is zero
_FACTORS = (0.9, 0.945, 0.97, 1.0, 1.035, 1.0756)
"""Scales tried, as shares of the usual one (largest magnitude / -8). At 0.945 the largest weight is within the nested
range (-8.5); at 1.0756 its mirror image is too (7.4375), which Q4_0's own choice clips."""
_TARGET_SHARE = 32.0  # how much a squared error of the target counts against one of the base, when a scale is chosen
_CHUNK_WEIGHTS = 1 << 16  # what fits a core's cache as F32, several times over
_F16_MAX = 65504.0

Planes = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def encode(weights: NDArray[np.float32], importance: NDArray[np.float32] | None = None) -> Planes:
    """Base (rows, blocks, 18) in Q4_0's layout and residual nibbles (rows, blocks, 16) of weights (rows, columns).

    importance: one entry a column, how much its squared error counts. A residual byte holds the codes of columns j
    (low nibble) and j + 16 of its block, as Q4_0 does.
    """
    n_rows, n_cols = weights.shape
    blocks = weights.reshape(n_rows * n_cols // BLOCK, BLOCK)
    base = np.empty((len(blocks), BASE_BLOCK_BYTES), dtype=np.uint8)
    nibbles = np.empty((len(blocks), BLOCK // 2), dtype=np.uint8)
    n_each = max(1, _CHUNK_WEIGHTS // n_cols) * (n_cols // BLOCK)  # whole rows
    for start in range(0, len(blocks), n_each):
        part = slice(start, start + n_each)
        base[part], nibbles[part] = _encode_blocks(blocks[part], importance)
    shape = (n_rows, n_cols // BLOCK)
    return base.reshape(*shape, BASE_BLOCK_BYTES), nibbles.reshape(*shape, BLOCK // 2)


def decode(base: NDArray[np.uint8], nibbles: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The target's weights, shape (rows, columns)."""
    scales, q = _read_base(base)
    codes = 16 * q + _unpacked(nibbles).astype(np.float32) - np.float32(_CENTRE)
    weights: NDArray[np.float32] = (scales / np.float32(16) * codes).reshape(base.shape[0], -1)
    return weights


def decode_base(base: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The draft's weights, shape (rows, columns): what any Q4_0 reader gives."""
    scales, q = _read_base(base)
    weights: NDArray[np.float32] = (scales * (q - 8)).reshape(base.shape[0], -1)
    return weights


def _encode_blocks(blocks: NDArray[np.float32], importance: NDArray[np.float32] | None) -> Planes:
    n = len(blocks)
    at = np.abs(blocks).argmax(axis=1)
    own = blocks[np.arange(n), at] / np.float32(-8)
    weight: NDArray[np.float32] | None = None
    if importance is not None:
        weight = np.tile(importance.reshape(-1, BLOCK), (n * BLOCK // importance.size, 1))
    best = np.full(n, np.inf, dtype=np.float32)
    scales, codes = np.zeros(n, dtype=np.float16), np.zeros((n, BLOCK), dtype=np.uint8)
    for factor in _FACTORS:
        tried = np.clip(own * np.float32(factor), -_F16_MAX, _F16_MAX).astype(np.float16)
        found, error = _try_scale(blocks, tried, weight)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, tried, scales)
        np.copyto(codes, found, where=better[:, None])
    base = np.empty((n, BASE_BLOCK_BYTES), dtype=np.uint8)
    base[:, :2] = scales[:, None].view(np.uint8)
    base[:, 2:] = _packed(codes >> np.uint8(4))
    return base, _packed(codes & np.uint8(15))


def _try_scale(
    blocks: NDArray[np.float32], scales: NDArray[np.float16], weight: NDArray[np.float32] | None
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Codes 16 q + r under these scales, and the weighted error of both planes a block."""
    step = scales.astype(np.float32)[:, None] / 16
    inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step != 0)
    exact = blocks * inverse
    exact += _CENTRE
    rounded = np.rint(exact)
    np.clip(rounded, 0, 255, out=rounded)
    codes = rounded.astype(np.uint8)
    rounded -= exact
    exact -= (codes & 0xF0) + np.float32(8)  # the base's value: 16 (q - 8) steps
    rounded *= rounded
    exact *= exact
    rounded *= np.float32(_TARGET_SHARE)
    exact += rounded
    if weight is not None:
        exact *= weight
    sums: NDArray[np.float32] = exact.sum(axis=1) * np.square(step[:, 0])
    # A scale of nothing (a block of zeros, or below F16's range) leaves all of the block as error.
    return codes, np.where(step[:, 0] == 0, np.square(blocks).sum(axis=1), sums)


def _read_base(base: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    scales = np.ascontiguousarray(base[..., :2]).view(np.float16).astype(np.float32)
    return scales, _unpacked(base[..., 2:]).astype(np.float32)


def _packed(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    packed: NDArray[np.uint8] = codes[..., :16] | codes[..., 16:] << np.uint8(4)
    return packed


def _unpacked(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate((nibbles & np.uint8(15), nibbles >> np.uint8(4)), axis=-1)
