"""Importance matrices: read, written and checked, in the GGUF format of llama.cpp's imatrix tool.

An importance is the mean square of what a weight's column is multiplied with, over a calibration text. Takes files and
tensor tables, gives arrays that the quantizer can trust: finite, positive, of the right length. Collects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import FileError, GGUFError, UsageError
from ..format.atomic import written_whole
from ..format.container import Container, TensorInfo, read_container
from ..format.writer import write_gguf
from .recipe import may_quantize

_SUMS, _COUNTS = ".in_sum2", ".counts"
_FLOOR = 1e-6  # of the mean: a column that the text never touched still weighs something
_MIN_SHARE_KNOWN = 0.5


@dataclass(frozen=True, slots=True)
class Imatrix:
    """Sums of squares (one entry a column) and token counts by weight name."""

    sums: dict[str, NDArray[np.float32]]
    counts: dict[str, float]
    datasets: tuple[str, ...]
    n_chunks: int
    n_chunk_tokens: int

    @property
    def n_tokens(self) -> int:
        return int(max(self.counts.values(), default=0))


def write_imatrix(path: Path, matrix: Imatrix) -> None:
    """Writes the file at once; llama.cpp's tools read it."""
    fields = {
        "general.type": "imatrix",
        "imatrix.datasets": list(matrix.datasets),
        "imatrix.chunk_count": matrix.n_chunks,
        "imatrix.chunk_size": matrix.n_chunk_tokens,
    }
    tensors: dict[str, NDArray[np.float32]] = {}
    for name in sorted(matrix.sums):
        tensors[name + _SUMS] = matrix.sums[name].reshape(1, -1)
        tensors[name + _COUNTS] = np.array([[matrix.counts[name]]], dtype=np.float32)
    with written_whole(path) as partial, partial.open("wb") as file:
        write_gguf(file, fields, tensors)


def read_imatrix(path: Path) -> Imatrix:
    """Raises FileError for a file that is no importance matrix in the GGUF format."""
    try:
        container = read_container(path)
    except GGUFError as error:
        old = path.is_file() and path.read_bytes()[:4] != b"GGUF"
        hint = " (the old .dat format? write it again with llama-imatrix --output-format gguf)" if old else ""
        raise FileError(f"{path} is no importance matrix: {error}{hint}") from error
    if container.get("general.type") != "imatrix":
        raise FileError(f"{path} is a GGUF file, but no importance matrix")
    arrays = _read_arrays(container)
    sums, counts = {}, {}
    for full_name, values in arrays.items():
        name = full_name.removesuffix(_SUMS)
        if name == full_name:
            continue
        count = arrays.get(name + _COUNTS)
        if count is None or count.size != 1:
            continue  # one count an expert: mixtures are not quantized by this package
        sums[name], counts[name] = values.ravel(), float(count.ravel()[0])
    datasets = container.get("imatrix.datasets")
    return Imatrix(
        sums,
        counts,
        tuple(str(entry) for entry in datasets) if isinstance(datasets, list) else (),
        container.get_int("imatrix.chunk_count") or 0,
        container.get_int("imatrix.chunk_size") or 0,
    )


def usable_importances(
    matrix: Imatrix, tensors: Sequence[TensorInfo]
) -> tuple[dict[str, NDArray[np.float32]], tuple[str, ...]]:
    """Importances for the matrices of one model, and notes on those without.

    Never NaN, never zero. Raises UsageError when the matrix was made for another model.
    """
    wanted = {tensor.name: tensor for tensor in tensors if may_quantize(tensor)}
    _refuse_foreign(matrix, wanted)
    usable, silent = {}, []
    for name, tensor in wanted.items():
        importance = _importance(matrix, name)
        if importance is None:
            silent.append(name)
        else:
            assert importance.size == tensor.shape[0]
            usable[name] = importance
    broken = {name: n for name in usable if (n := int(np.sum(_is_broken(matrix.sums[name]))))}
    notes = []
    if broken:
        notes.append(
            f"the importance matrix has no number for {sum(broken.values())} columns of {_some(list(broken))}: "
            "they weigh least"
        )
    if silent:
        notes.append(f"the importance matrix says nothing of {_some(silent)}: quantized without it")
    return usable, tuple(notes)


def _is_broken(sums: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Entries that no sum of squares can be; zero is fine: a text that never touches a column says so."""
    broken: NDArray[np.bool_] = ~np.isfinite(sums) | (sums < 0)
    return broken


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _importance(matrix: Imatrix, name: str) -> NDArray[np.float32] | None:
    sums, count = matrix.sums.get(name), matrix.counts.get(name, 0.0)
    if sums is None or not np.isfinite(count) or count <= 0:
        return None
    mean_squares = np.where(np.isfinite(sums) & (sums > 0), sums, 0.0).astype(np.float64) / count
    mean = float(mean_squares.mean())
    if mean <= 0:
        return None
    floored: NDArray[np.float32] = np.maximum(mean_squares, mean * _FLOOR).astype(np.float32)
    return floored


def _refuse_foreign(matrix: Imatrix, wanted: Mapping[str, TensorInfo]) -> None:
    if not matrix.sums:
        raise UsageError("the importance matrix is empty")
    for name, sums in matrix.sums.items():
        if name in wanted and sums.size != wanted[name].shape[0]:
            raise UsageError(
                f"the importance matrix is of another model: '{name}' has {sums.size} columns there "
                f"and {wanted[name].shape[0]} here"
            )
    n_known = sum(name in wanted for name in matrix.sums)
    if n_known < _MIN_SHARE_KNOWN * len(matrix.sums):
        raise UsageError(
            f"the importance matrix is of another model: of its {len(matrix.sums)} tensors only {n_known} are here"
        )


def _read_arrays(container: Container) -> dict[str, NDArray[np.float32]]:
    arrays = {}
    with container.path.open("rb") as file:
        for tensor in container.tensors:
            if tensor.weight_type.name != "F32":
                raise FileError(f"{container.path}: '{tensor.name}' is {tensor.weight_type.name}, importances are F32")
            file.seek(container.data_offset + tensor.offset)
            arrays[tensor.name] = np.fromfile(file, dtype="<f4", count=tensor.n_weights).reshape(tensor.shape[::-1])
    return arrays
