"""How a residual plane lies in its file, and what one plane is: names, sizes, offsets. Arrays in, arrays out.

A tied residual byte holds the codes of columns j (low nibble) and j + 16 of a block. Rows lie in groups of eight, a
group's blocks one after another, each as 2 halves x 8 rows x 8 bytes: the order in which the engine keeps repacked Q4_0
weights, so that one load brings both planes of the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
GROUP_ROWS = 8
BASE_BLOCK_BYTES = 18
TIED = "tied"
FREE_TYPES = {"Q4_0": 2, "Q8_0": 8}
_ROW_BYTES = {"Q4_0": 18, "Q8_0": 34}


@dataclass(frozen=True, slots=True)
class Plane:
    """One nested weight: where its base and its residual start in their files. `kind` is "tied" or a weight type."""

    name: str
    n_cols: int
    n_rows: int
    kind: str
    base_offset: int
    residual_offset: int

    @property
    def n_blocks(self) -> int:
        return self.n_cols // BLOCK

    @property
    def n_base_bytes(self) -> int:
        return self.n_rows * self.n_blocks * BASE_BLOCK_BYTES

    @property
    def n_residual_bytes(self) -> int:
        if self.kind == TIED:
            return -(-self.n_rows // GROUP_ROWS) * GROUP_ROWS * self.n_cols // 2
        return self.n_rows * self.n_blocks * _ROW_BYTES[self.kind]


def grouped(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows x blocks x 16 bytes -> groups x blocks x 2 halves x 8 rows x 8 bytes; missing rows are zeros."""
    n_rows, n_blocks, _ = nibbles.shape
    n_groups = -(-n_rows // GROUP_ROWS)
    padded = np.zeros((n_groups * GROUP_ROWS, n_blocks, BLOCK // 2), dtype=np.uint8)
    padded[:n_rows] = nibbles
    return np.ascontiguousarray(padded.reshape(n_groups, GROUP_ROWS, n_blocks, 2, 8).transpose(0, 2, 3, 1, 4))


def ungrouped(plane: NDArray[np.uint8], n_rows: int, n_blocks: int) -> NDArray[np.uint8]:
    """The inverse of `grouped`: rows x blocks x 16 bytes."""
    groups = plane.reshape(-1, n_blocks, 2, GROUP_ROWS, 8).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(groups.reshape(-1, n_blocks, BLOCK // 2)[:n_rows])


def residual_as_q4_0(base: NDArray[np.uint8], nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A tied residual as an ordinary Q4_0 tensor (scale d / 16), for products without the kernel.

    base: rows x blocks x 18 bytes, nibbles: rows x blocks x 16; gives rows x blocks x 18.
    """
    scales = np.ascontiguousarray(base[..., :2]).view(np.float16)
    blocks = np.empty_like(base)
    blocks[..., :2] = (scales / np.float16(16)).view(np.uint8)
    blocks[..., 2:] = nibbles
    return blocks


def dequantized(rows: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """Values of rows of Q4_0 or Q8_0 blocks: (n, bytes) -> (n, columns). Mirrors gguf-py's quants."""
    blocks = rows.reshape(len(rows), -1, _ROW_BYTES[kind])
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    codes = blocks[..., 2:]
    if kind == "Q8_0":
        values = codes.view(np.int8).astype(np.float32)
    else:
        values = np.concatenate((codes & np.uint8(15), codes >> np.uint8(4)), axis=-1).astype(np.float32) - 8
    result: NDArray[np.float32] = (scales * values).reshape(len(rows), -1)
    return result
