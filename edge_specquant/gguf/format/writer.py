"""Writes GGUF files: a header from fields and a tensor table, then tensor data in order, in pieces of any size.

Takes Python values, infers their GGUF types (int -> u32 or i32 arrays, float -> f32). Knows nothing of models.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .container import TensorInfo

ALIGNMENT = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64 = 4, 5, 6, 7, 8, 9, 10


def laid_out(tensors: Sequence[TensorInfo]) -> tuple[TensorInfo, ...]:
    """The same tensors with offsets one after another, each aligned."""
    placed, offset = [], 0
    for tensor in tensors:
        placed.append(TensorInfo(tensor.name, tensor.shape, tensor.weight_type, offset))
        offset += padded(tensor.n_bytes)
    return tuple(placed)


def padded(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def encode_header(fields: Mapping[str, Any], tensors: Sequence[TensorInfo]) -> bytes:
    """The whole header, padded to where the data begins. Its length does not depend on the weight types."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(fields))]
    parts += [_text(key) + _value(value) for key, value in fields.items()]
    for tensor in tensors:
        sizes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        parts.append(_text(tensor.name) + sizes + struct.pack("<IQ", tensor.weight_type.ggml_id, tensor.offset))
    header = b"".join(parts)
    return header + b"\0" * (padded(len(header)) - len(header))


def write_gguf(file: BinaryIO, fields: Mapping[str, Any], tensors: Mapping[str, NDArray[np.float32]]) -> None:
    """A small file in one go, every tensor F32 (an importance matrix, for example)."""
    from .weight_types import BY_NAME

    infos = laid_out([TensorInfo(name, array.shape[::-1], BY_NAME["F32"], 0) for name, array in tensors.items()])
    file.write(encode_header(fields, infos))
    for info, array in zip(infos, tensors.values(), strict=True):
        data = np.ascontiguousarray(array, dtype="<f4").tobytes()
        file.write(data + b"\0" * (padded(info.n_bytes) - len(data)))


def _text(text: str) -> bytes:
    # A lone surrogate can come out of a damaged vocabulary; it must not stop the file from being written.
    data = text.encode("utf-8", errors="replace")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        return _array(value)
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value) if value < 1 << 32 else struct.pack("<IQ", _U64, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    return struct.pack("<I", _STRING) + _text(str(value))


def _array(values: list[Any]) -> bytes:
    n = len(values)
    first = values[0] if values else ""
    if isinstance(first, bool):
        return struct.pack(f"<IIQ{n}?", _ARRAY, _BOOL, n, *values)
    if isinstance(first, int):
        return struct.pack(f"<IIQ{n}i", _ARRAY, _I32, n, *values)
    if isinstance(first, float):
        return struct.pack(f"<IIQ{n}f", _ARRAY, _F32, n, *values)
    return struct.pack("<IIQ", _ARRAY, _STRING, n) + b"".join(_text(str(value)) for value in values)
