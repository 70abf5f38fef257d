"""One safetensors file: header first, rows of a tensor when asked for.

Takes a path, gives tensors that are read in slices with plain file reads, so that the resident memory is that of the
slice. Every offset is checked against the file before it is believed. The library `safetensors` is not used because it
has no numpy type for BF16. Format: https://github.com/huggingface/safetensors (8 bytes of length, JSON, data).
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from ..format.container import describe_foreign

_MAX_HEADER_BYTES = 100_000_000  # the library's own limit
_NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_OTHER_SIZES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint: `shape` as numpy sees it (rows first), data at `offset` in `path`."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def is_float(self) -> bool:
        return self.dtype in _NUMPY_TYPES

    @property
    def n_rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def n_row_weights(self) -> int:
        return math.prod(self.shape[1:])

    def read_rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows start to stop as F32 (F64 is rounded), shape (stop - start, ...). Raises CheckpointError."""
        numpy_type = np.dtype(_NUMPY_TYPES[self.dtype])
        n_weights = (stop - start) * self.n_row_weights
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + start * self.n_row_weights * numpy_type.itemsize)
                raw = np.fromfile(file, dtype=numpy_type, count=n_weights)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if raw.size != n_weights:
            raise CheckpointError(f"{self.path} ended while reading '{self.name}'; fetch it again")
        return _to_f32(raw, self.dtype).reshape((stop - start, *self.shape[1:]))


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file. Raises CheckpointError: missing, foreign, truncated or damaged file."""
    try:
        n_bytes_file = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(64)
            n_header = struct.unpack("<Q", prefix[:8])[0] if len(prefix) >= 8 else -1
            if not 2 <= n_header <= min(_MAX_HEADER_BYTES, n_bytes_file - 8):
                raise _foreign(path, prefix, n_header, n_bytes_file)
            file.seek(8)
            header = json.loads(file.read(n_header))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} has a damaged header ({error}); fetch it again") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a damaged header (no table of tensors); fetch it again")
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, entry, 8 + n_header, n_bytes_file) for name, entry in header.items()}
    _refuse_overlap(path, tensors)
    return tensors


def _tensor(path: Path, name: str, entry: Any, data_start: int, n_bytes_file: int) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = str(entry["dtype"]), tuple(entry["shape"]), entry["data_offsets"]
        whole = all(isinstance(number, int) and number >= 0 for number in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path} has a damaged header (tensor '{name}'); fetch it again")
    item = np.dtype(_NUMPY_TYPES[dtype]).itemsize if dtype in _NUMPY_TYPES else _OTHER_SIZES.get(dtype)
    if item is not None and end - begin != math.prod(shape) * item:
        raise CheckpointError(f"{path}: tensor '{name}' of shape {list(shape)} claims {end - begin} bytes of {dtype}")
    if data_start + end > n_bytes_file:
        raise CheckpointError(
            f"{path} is not whole: the file is {n_bytes_file} bytes, needs {data_start + end}; fetch it again"
        )
    return StoredTensor(name, path, dtype, shape, data_start + begin)


def _refuse_overlap(path: Path, tensors: dict[str, StoredTensor]) -> None:
    end, last = 0, ""
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if not tensor.is_float:
            continue
        if tensor.offset < end:
            raise CheckpointError(f"{path} has a damaged header (tensors '{last}' and '{tensor.name}' overlap)")
        end = tensor.offset + math.prod(tensor.shape) * np.dtype(_NUMPY_TYPES[tensor.dtype]).itemsize
        last = tensor.name


def _to_f32(raw: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32, copy=False)


def _foreign(path: Path, prefix: bytes, n_header: int, n_bytes_file: int) -> CheckpointError:
    if prefix[8:9] == b"{":
        return CheckpointError(
            f"{path} is not whole: the file is {n_bytes_file} bytes, needs {8 + n_header} for its header"
        )
    return CheckpointError(f"{path} is not a safetensors file: {describe_foreign(prefix, n_bytes_file)}")
