"""What the kernel computes, without an engine, beside the same by numpy: proof before use, and what tests stand on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .nested_planes import grouped

FORMATS = ("nested", "q8_0", "f16", "q4_k", "q4_0")
LAYOUT_ROWS = 0
_TOLERANCE = 0.02  # of the largest sum: activations are rounded to 8 bits
_ATTENTION_TOLERANCE = 1e-4  # of values of size 1
_TYPE_F16, _TYPE_Q8_0, _Q8_BYTES = 1, 8, 34
Cache = NDArray[np.float16] | NDArray[np.uint8]
"""Keys or values of cells: halves, or Q8_0 blocks as bytes."""


def is_right(library: Any, level: int) -> bool:
    """Whether the library's products of every format are those of numpy."""
    rng = np.random.default_rng(7)
    x = rng.normal(0, 1, (11, 512)).astype(np.float32)
    narrow = ((make, 16, 96) for make in (random_q8_0, random_f16, random_q4_0))
    for make, n_rows, n_cols in ((random_nested, 13, 96), *narrow, (random_q4_k, 16, 512)):
        weights, columns = make(rng, n_rows, n_cols), x[:, :n_cols]
        found = multiply(library, level, weights, columns)
        expected = columns.astype(np.float64) @ weights.values.T
        if np.abs(found - expected).max() > _TOLERANCE * np.abs(expected).max():
            return False
    return _attends_rightly(library, level, rng)


def _attends_rightly(library: Any, level: int, rng: np.random.Generator) -> bool:
    q = rng.normal(0, 1, (3, 4, 64)).astype(np.float32)
    k, v = rng.normal(0, 1, (2, 48, 2, 64)).astype(np.float16)
    mask = np.where(np.arange(48) <= 20 + np.arange(3)[:, None], 0, -np.inf).astype(np.float16)
    packed, exact = as_q8_0(k)
    for cache, keys in ((k, k), (packed, exact)):
        found = attend(library, level, q, cache, v, mask, 0.125)
        if found is not None and np.abs(found - attention(q, keys, v, mask, 0.125)).max() > _ATTENTION_TOLERANCE:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Weights:
    """A matrix in a format of the kernel, and the values it stands for, (n_rows, n_columns)."""

    kind: str
    data: NDArray[np.uint8]
    values: NDArray[np.float64]
    residual: NDArray[np.uint8] | None = None
    layout: int = LAYOUT_ROWS


def multiply(library: Any, level: int, weights: Weights, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """x (n, n_columns) times weights, without an engine: shape (n, n_rows). Raises MemoryError."""
    n_rows, n_cols = weights.values.shape
    y = np.empty((x.shape[0], n_rows), dtype=np.float32)
    data, x = np.ascontiguousarray(weights.data), np.ascontiguousarray(x)
    residual = None if weights.residual is None else np.ascontiguousarray(weights.residual)
    done = library.esq_multiply(
        FORMATS.index(weights.kind),
        level,
        weights.layout,
        data.ctypes.data,
        None if residual is None else residual.ctypes.data,
        n_cols,
        n_rows,
        x.ctypes.data,
        x.shape[0],
        y.ctypes.data,
    )
    if not done:
        raise MemoryError("no memory for the kernel's scratch space")
    return y


def attend(
    library: Any,
    level: int,
    q: NDArray[np.float32],
    k: Cache,
    v: Cache,
    mask: NDArray[np.float16],
    scale: float,
    n_threads: int = 1,
) -> NDArray[np.float32] | None:
    """Attention of queries (n, heads, size) over keys and values (cells, kv heads, size) behind a mask (n, cells).

    Without an engine; shape (n, heads, size of a value), None where the kernel has no code for such sizes.
    """
    n, heads, size = q.shape
    types = [_TYPE_F16 if cache.dtype == np.float16 else _TYPE_Q8_0 for cache in (k, v)]
    n_values = v.shape[2] if types[1] == _TYPE_F16 else v.shape[2] // _Q8_BYTES * 32
    sizes = np.array([n, heads, k.shape[1], size, n_values, k.shape[0], n_threads, *types], dtype=np.int64)
    out = np.empty((n, heads, n_values), dtype=np.float32)
    held: list[NDArray[Any]] = [sizes, *map(np.ascontiguousarray, (q, k, v, mask))]
    addresses = (array.ctypes.data for array in held)
    return out if library.esq_attend(level, *addresses, scale, out.ctypes.data) else None


def as_q8_0(values: NDArray[np.float16]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """A cache as Q8_0 blocks, (cells, kv heads, size / 32 * 34 bytes), and the values these stand for."""
    blocks = values.astype(np.float32).reshape(*values.shape[:-1], -1, 32)
    scales = (np.abs(blocks).max(axis=-1, keepdims=True) / 127).astype(np.float16)
    divisors = np.where(scales == 0, 1, scales).astype(np.float32)
    codes = np.rint(blocks / divisors).clip(-127, 127).astype(np.int8)
    packed = np.concatenate((scales.view(np.uint8), codes.view(np.uint8)), axis=-1)
    exact = scales.astype(np.float64) * codes
    return packed.reshape(*values.shape[:-1], -1), exact.reshape(values.shape)


def attention(
    q: NDArray[np.float32],
    k: NDArray[np.floating[Any]],
    v: NDArray[np.floating[Any]],
    mask: NDArray[np.float16],
    scale: float,
) -> NDArray[np.float64]:
    """The same by numpy, in double precision; queries that see no cell get zeros."""
    per_head = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(each, per_head, axis=1).astype(np.float64) for each in (k, v))
    scores = np.einsum("nhd,chd->hnc", q.astype(np.float64), keys) * scale + mask.astype(np.float64)
    highest = np.maximum(scores.max(axis=2, keepdims=True), np.finfo(np.float32).min)
    weights = np.exp(scores - highest)
    shares = weights / np.maximum(weights.sum(axis=2, keepdims=True), np.finfo(np.float64).tiny)
    mixed: NDArray[np.float64] = np.einsum("hnc,chd->nhd", shares, values)
    return mixed


def random_nested(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """A base of plain Q4_0 blocks and a residual plane in its own order."""
    n_blocks = n_cols // 32
    scales = _random_scales(rng, n_rows, n_blocks)
    codes = rng.integers(0, 256, (n_rows, n_blocks, 32))
    q, r = codes >> 4, codes & 15
    base = np.empty((n_rows, n_blocks, 18), dtype=np.uint8)
    base[..., :2] = scales.view(np.uint8)
    base[..., 2:] = q[..., :16] | q[..., 16:] << 4
    values = scales.astype(np.float64) / 16 * (codes - 136)
    nibbles = (r[..., :16] | r[..., 16:] << 4).astype(np.uint8)
    return Weights("nested", base, values.reshape(n_rows, n_cols), grouped(nibbles))


def random_q8_0(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of Q8_0 blocks."""
    scales = _random_scales(rng, n_rows, n_cols // 32)
    codes = rng.integers(-128, 128, (n_rows, n_cols // 32, 32), dtype=np.int8)
    data = np.concatenate((scales.view(np.uint8), codes.view(np.uint8)), axis=2)
    return Weights("q8_0", data, (scales.astype(np.float64) * codes).reshape(n_rows, n_cols))


def random_f16(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of half floats."""
    values = rng.normal(0, 1, (n_rows, n_cols)).astype(np.float16)
    return Weights("f16", values.view(np.uint8), values.astype(np.float64))


def random_q4_0(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of Q4_0 blocks: a nested base by itself."""
    n_blocks = n_cols // 32
    scales = _random_scales(rng, n_rows, n_blocks)
    codes = rng.integers(0, 16, (n_rows, n_blocks, 32))
    nibbles = (codes[..., :16] | codes[..., 16:] << 4).astype(np.uint8)
    data = np.concatenate((scales.view(np.uint8), nibbles), axis=2)
    return Weights("q4_0", data, (scales.astype(np.float64) * (codes - 8)).reshape(n_rows, n_cols))


def random_q4_k(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of Q4_K superblocks: d and dmin, 8 scales and 8 minima of 6 bits in 12 bytes, nibbles of 2 x 32 weights."""
    shape = (n_rows, n_cols // 256)
    units = rng.uniform(0.5, 1.5, (*shape, 2)).astype(np.float16)
    scales, minima = rng.integers(0, 64, (2, *shape, 8), dtype=np.uint8)
    codes = rng.integers(0, 16, (*shape, 4, 2, 32), dtype=np.uint8)
    low, high = slice(0, 4), slice(4, 8)
    packed = (
        scales[..., low] | (scales[..., high] & 0x30) << 2,
        minima[..., low] | (minima[..., high] & 0x30) << 2,
        scales[..., high] & 15 | minima[..., high] << 4,
    )
    nibbles = (codes[..., 0, :] | codes[..., 1, :] << 4).reshape(*shape, 128)
    data = np.concatenate((units.view(np.uint8), *packed, nibbles), axis=2)
    exact = units.astype(np.float64)
    by_block = codes.reshape(*shape, 8, 32)
    values = (exact[..., :1] * scales)[..., None] * by_block - (exact[..., 1:] * minima)[..., None]
    return Weights("q4_k", data, values.reshape(n_rows, n_cols))


def _random_scales(rng: np.random.Generator, n_rows: int, n_blocks: int) -> NDArray[np.float16]:
    sizes = rng.uniform(0.5, 1.5, (n_rows, n_blocks, 1)) * rng.choice((-1.0, 1.0), (n_rows, n_blocks, 1))
    scales: NDArray[np.float16] = sizes.astype(np.float16)
    return scales
