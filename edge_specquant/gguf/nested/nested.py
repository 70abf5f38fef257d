"""Nested files: a base that any llama.cpp loads as a Q4_0 model, and a second GGUF with what refines it to 8 bits.

llama.cpp refuses a file with tensors it does not ask for, so the residual lies in a file of its own, bound to its base
by name, size and hash. Both carry the whole header: the same fingerprints prove both. Knows nothing of families.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...errors import GGUFError, UsageError
from ...native.kernel.nested_planes import BLOCK, FREE_TYPES, GROUP_ROWS, TIED, Plane, grouped
from ..family.family import sha256_of
from ..format.atomic import require_space, written_whole
from ..format.container import Container, Field, TensorInfo, read_container
from ..format.header import read_shards
from ..format.weight_types import BY_NAME
from ..format.writer import laid_out, padded
from ..quantize.recipe import may_quantize
from .nested_codec import decode_base, encode

Progress = Callable[[int, int], None]
"""Called with (done, total) weights."""

_FORMAT = 1
_SLICE_WEIGHTS = 1 << 22
_STRING, _ARRAY, _U32, _U64 = 8, 9, 4, 10
_FILE_TYPE_Q4_0 = 2
_FLOATS = {"F32": "<f4", "F16": "<f2"}
RESIDUALS = (TIED, "q4_0", "q8_0")
BASE, NESTED = "base", "nested"
"""Names of the two siblings in a family: the draft, and the target around it."""


@dataclass(frozen=True, slots=True)
class NestedFiles:
    """What was written. Bits count every tensor: the base alone, and both planes together."""

    base: Path
    residual: Path
    base_sha256: str
    n_nested: int
    base_bits_per_weight: float
    bits_per_weight: float


def write_nested(
    source: Path,
    base: Path,
    residual: Path,
    *,
    kind: str = TIED,
    importances: Mapping[str, NDArray[np.float32]] | None = None,
    n_threads: int = 0,
    progress: Progress | None = None,
) -> NestedFiles:
    """Writes both files from a model, best a float one; each whole or not at all.

    kind: "tied" (8-bit target, 8.5 bits for both planes), or "q4_0" or "q8_0" with scales of their own (9 and 13 bits).
    importances: weight name -> importance of each column. n_threads 0 takes every core. Raises UsageError for a
    mixture of experts, GGUFError, DiskFullError.
    """
    if kind not in RESIDUALS:
        raise UsageError(f"'{kind}' is no kind of residual; use one of {', '.join(RESIDUALS)}")
    shards = read_shards(source)
    sources = [(shard, tensor) for shard in shards for tensor in shard.tensors]
    nested = {tensor.name for _, tensor in sources if _can_nest(tensor)}
    base_infos = laid_out([_base_info(tensor, tensor.name in nested) for _, tensor in sources])
    planes = laid_out([_residual_info(tensor, kind) for _, tensor in sources if tensor.name in nested])
    fields = {
        key: field
        for key, field in shards[0].fields.items()
        if not key.startswith("split.") and key != "general.alignment"
    }
    base_fields = {**fields, "general.file_type": _number(_FILE_TYPE_Q4_0)}
    n_bytes = sum(padded(info.n_bytes) for info in (*base_infos, *planes))
    require_space(base.parent, n_bytes + 2 * shards[0].data_offset)
    n_weights = sum(tensor.n_weights for _, tensor in sources)
    writer = _Writer(kind, importances or {}, n_threads or os.cpu_count() or 1, n_weights, progress)
    with written_whole(residual) as residual_partial, residual_partial.open("w+b") as residual_file:
        residual_fields = {**fields, **_own_fields(kind, base.name, 0, "0" * 64)}
        residual_file.write(_header(residual_fields, planes))
        with written_whole(base) as base_partial, base_partial.open("wb") as base_file:
            base_file.write(_header(base_fields, base_infos))
            for shard, tensor in sources:
                writer.write(shard, tensor, base_file, residual_file if tensor.name in nested else None)
        sha256 = sha256_of(base)
        residual_file.seek(0)  # same lengths, so the header fits where its placeholder was
        bound = {**fields, **_own_fields(kind, base.name, base.stat().st_size, sha256)}
        residual_file.write(_header(bound, planes))
    n_base_bytes = sum(info.n_bytes for info in base_infos)
    n_residual_bytes = sum(info.n_bytes for info in planes)
    return NestedFiles(
        base=base,
        residual=residual,
        base_sha256=sha256,
        n_nested=len(nested),
        base_bits_per_weight=8 * n_base_bytes / n_weights,
        bits_per_weight=8 * (n_base_bytes + n_residual_bytes) / n_weights,
    )


def is_residual(container: Container) -> bool:
    """Whether this is the second file of a nested pair: no model by itself."""
    return "nested.format" in container.fields


def read_planes(residual: Path) -> tuple[Path, tuple[Plane, ...]]:
    """The base beside a residual file, and every nested weight. Raises GGUFError for strangers."""
    container = read_container(residual)
    if container.get_int("nested.format") != _FORMAT:
        raise GGUFError(
            f"{residual} is no residual of format {_FORMAT}; make it again: edge-specquant convert --nested"
        )
    base_path = residual.with_name(container.get_str("nested.base") or "")
    base = read_container(base_path)
    expected = container.get_int("nested.base_bytes")
    if base.n_bytes_file != expected:
        raise GGUFError(f"{base_path} is {base.n_bytes_file} bytes; {residual.name} refines one of {expected}")
    kind = container.get_str("nested.kind") or TIED
    below = {tensor.name: tensor for tensor in base.tensors}
    planes = []
    for tensor in container.tensors:
        under = below.get(tensor.name)
        if under is None or under.weight_type.name != "Q4_0":
            raise GGUFError(f"{residual} refines '{tensor.name}', which {base_path.name} does not hold as Q4_0")
        n_cols, n_rows = under.shape
        plane = Plane(
            name=tensor.name,
            n_cols=n_cols,
            n_rows=n_rows,
            kind=kind if kind == TIED else kind.upper(),
            base_offset=base.data_offset + under.offset,
            residual_offset=container.data_offset + tensor.offset,
        )
        if plane.n_residual_bytes != tensor.n_bytes:
            raise GGUFError(f"{residual}: '{tensor.name}' is {tensor.n_bytes} bytes, {plane.n_residual_bytes} expected")
        planes.append(plane)
    return base_path, tuple(planes)


class _Writer:
    """Writes tensors in order, both planes of a nested one slice by slice."""

    def __init__(
        self,
        kind: str,
        importances: Mapping[str, NDArray[np.float32]],
        n_threads: int,
        total: int,
        progress: Progress | None,
    ) -> None:
        self._kind, self._importances, self._n_threads = kind, importances, n_threads
        self._done, self._total, self._progress = 0, total, progress

    def write(self, shard: Container, tensor: TensorInfo, base: BinaryIO, residual: BinaryIO | None) -> None:
        if residual is None:
            data = _mapped(shard, tensor)
            base.write(data.tobytes() + b"\0" * (padded(data.size) - data.size))
            self._report(tensor.n_weights)
            return
        starts = (base.tell(), residual.tell())
        importance = self._importances.get(tensor.name)
        with ThreadPoolExecutor(self._n_threads) as pool:
            slices = _slices(shard, tensor)
            for rows, (base_blocks, fine) in zip(
                _slices(shard, tensor), pool.map(lambda rows: self._encoded(rows, importance), slices), strict=True
            ):
                base.write(base_blocks)
                residual.write(fine)
                self._report(rows.size)
        for file, start in zip((base, residual), starts, strict=True):
            file.write(b"\0" * (padded(file.tell() - start) - (file.tell() - start)))

    def _encoded(self, rows: _Rows, importance: NDArray[np.float32] | None) -> tuple[bytes, bytes]:
        weights = rows.read()
        base, nibbles = encode(weights, importance)
        if self._kind == TIED:
            return base.tobytes(), grouped(nibbles).tobytes()
        from gguf import GGMLQuantizationType, quants

        left = weights - decode_base(base)
        free = quants.quantize(left, GGMLQuantizationType(FREE_TYPES[self._kind.upper()]))
        return base.tobytes(), free.tobytes()

    def _report(self, n_weights: int) -> None:
        self._done += n_weights
        if self._progress is not None:
            self._progress(self._done, self._total)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of a tensor, still in the file."""

    data: NDArray[np.uint8]
    type_name: str
    ggml_id: int
    n_cols: int

    @property
    def size(self) -> int:
        return self.data.size // BY_NAME[self.type_name].n_block_bytes * BY_NAME[self.type_name].n_per_block

    def read(self) -> NDArray[np.float32]:
        """Values as (rows, columns)."""
        floats = _FLOATS.get(self.type_name)
        if floats is not None:
            values: NDArray[np.float32] = self.data.view(floats).astype(np.float32)
            return values.reshape(-1, self.n_cols)
        if self.type_name == "BF16":
            wide = self.data.view("<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(-1, self.n_cols)
        from gguf import GGMLQuantizationType, quants

        rows = self.data.reshape(-1, BY_NAME[self.type_name].n_bytes(self.n_cols))
        values = quants.dequantize(rows, GGMLQuantizationType(self.ggml_id))
        return values.reshape(-1, self.n_cols)


def _slices(shard: Container, tensor: TensorInfo) -> Iterator[_Rows]:
    """Whole groups of rows, so that slices of a grouped plane can be put one after another."""
    data = _mapped(shard, tensor)
    n_cols, n_rows = tensor.shape[0], tensor.shape[1]
    n_row_bytes = tensor.weight_type.n_bytes(n_cols)
    n_each = max(1, _SLICE_WEIGHTS // n_cols // GROUP_ROWS) * GROUP_ROWS
    for start in range(0, n_rows, n_each):
        part = data[start * n_row_bytes : min(start + n_each, n_rows) * n_row_bytes]
        yield _Rows(part, tensor.weight_type.name, tensor.weight_type.ggml_id, n_cols)


def _mapped(shard: Container, tensor: TensorInfo) -> NDArray[np.uint8]:
    offset = shard.data_offset + tensor.offset
    return np.memmap(shard.path, dtype=np.uint8, mode="r", offset=offset, shape=(tensor.n_bytes,))


def _can_nest(tensor: TensorInfo) -> bool:
    if not may_quantize(tensor) or tensor.shape[0] % BLOCK:
        return False
    if len([size for size in tensor.shape[1:] if size > 1]) > 1:
        raise UsageError(f"'{tensor.name}' holds several experts; mixtures of experts cannot be nested yet")
    return True


def _base_info(tensor: TensorInfo, nested: bool) -> TensorInfo:
    return TensorInfo(tensor.name, tensor.shape, BY_NAME["Q4_0"] if nested else tensor.weight_type, 0)


def _residual_info(tensor: TensorInfo, kind: str) -> TensorInfo:
    if kind != TIED:
        return TensorInfo(tensor.name, tensor.shape, BY_NAME[kind.upper()], 0)
    n_rows = -(-tensor.shape[1] // GROUP_ROWS) * GROUP_ROWS
    return TensorInfo(tensor.name, (tensor.shape[0] // 2, n_rows), BY_NAME["I8"], 0)


def _own_fields(kind: str, base_name: str, n_base_bytes: int, base_sha256: str) -> dict[str, Field]:
    return {
        "nested.format": _number(_FORMAT),
        "nested.kind": Field(_STRING, kind.encode()),
        "nested.base": Field(_STRING, base_name.encode()),
        "nested.base_bytes": Field(_U64, struct.pack("<Q", n_base_bytes)),
        "nested.base_sha256": Field(_STRING, base_sha256.encode()),
    }


def _number(value: int) -> Field:
    return Field(_U32, struct.pack("<I", value))


def _header(fields: Mapping[str, Field], tensors: tuple[TensorInfo, ...]) -> bytes:
    """A header from undecoded fields: they keep the types that the source gave them."""
    parts: list[Any] = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(fields))]
    for key, field in fields.items():
        parts += [_text(key.encode()), struct.pack("<I", field.value_type)]
        if field.value_type == _ARRAY:
            parts += [struct.pack("<IQ", field.element_type, field.n_elements), field.raw]
        else:
            parts.append(_text(field.raw) if field.value_type == _STRING else field.raw)
    for tensor in tensors:
        sizes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        parts += [_text(tensor.name.encode()), sizes, struct.pack("<IQ", tensor.weight_type.ggml_id, tensor.offset)]
    header = b"".join(parts)
    return header + b"\0" * (padded(len(header)) - len(header))


def _text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data
