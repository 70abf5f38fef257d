"""Checkpoint -> F16 or BF16 GGUF, streamed: at most one slice of one tensor in memory.

Takes a Checkpoint, gives the plan of a file (fields, tensors) and writes it. A tensor that leaves F16's range is
written as BF16 instead (same size, so the header is patched in place) and named in the result. Knows nothing of
families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError
from ..format.container import TensorInfo
from ..format.weight_types import BY_NAME
from ..format.writer import encode_header, laid_out, padded
from ..quantize.recipe import may_quantize
from .arch import Hparams, TensorRule, architecture_notes, find_architecture, metadata_fields, tensor_rules
from .checkpoint import Checkpoint
from .safetensors_file import StoredTensor
from .tokenizer import read_vocabulary, vocabulary_fields

_SLICE_WEIGHTS = 1 << 24  # 64 MiB as F32
_F16_MAX = 65_504.0
_FILE_TYPES = {"F16": 1, "BF16": 32}
_EMBEDDING = "token_embd.weight"


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One tensor to write: from a stored one by a rule, or computed values."""

    info: TensorInfo
    stored: StoredTensor | None
    rule: TensorRule
    values: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class BasePlan:
    """A float GGUF to be: header fields and tensors in order."""

    architecture: str
    float_type: str
    fields: dict[str, Any]
    tensors: tuple[TensorPlan, ...]
    notes: tuple[str, ...]

    @property
    def infos(self) -> tuple[TensorInfo, ...]:
        return tuple(plan.info for plan in self.tensors)

    @property
    def n_bytes(self) -> int:
        return self.n_header_bytes + sum(padded(info.n_bytes) for info in self.infos)

    @property
    def n_header_bytes(self) -> int:
        return len(encode_header(self.fields, self.infos))


def plan_base(checkpoint: Checkpoint, float_type: str, *, name: str, pre: str | None = None) -> BasePlan:
    """Maps every tensor and number; reads no weights. `float_type` is F16 or BF16. Raises CheckpointError."""
    architecture = find_architecture(checkpoint.hf_architecture)
    hparams = Hparams(checkpoint.config, architecture.defaults)
    rules = tensor_rules(architecture, hparams, list(checkpoint.tensors))
    plans = [_plan(checkpoint.tensors[source], rule, float_type) for source, rule in rules.items()]
    for computed, values in architecture.extra_tensors(hparams).items():
        info = TensorInfo(computed, values.shape, BY_NAME["F32"], 0)
        plans.append(TensorPlan(info, None, TensorRule(computed), values))
    _check_shapes(plans, hparams)
    n_rows = next(plan.info.shape[1] for plan in plans if plan.info.name == _EMBEDDING)
    vocabulary = read_vocabulary(checkpoint.folder, n_rows, pre=pre, space_prefix=architecture.writes_space_prefix)
    fields = {
        "general.architecture": architecture.gguf_name,
        "general.type": "model",
        "general.name": name,
        "general.file_type": _FILE_TYPES[float_type],
        "general.alignment": 32,
        **metadata_fields(architecture, hparams),
        f"{architecture.gguf_name}.vocab_size": n_rows,
        **vocabulary_fields(vocabulary),
    }
    placed = laid_out([plan.info for plan in plans])
    tensors = tuple(replace(plan, info=info) for plan, info in zip(plans, placed, strict=True))
    notes = (*vocabulary.notes, *architecture_notes(architecture, hparams))
    return BasePlan(architecture.gguf_name, float_type, fields, tensors, notes)


def replace_float(plan: BasePlan, float_type: str) -> BasePlan:
    """The same file with its matrices in the other float type (both take two bytes, so nothing moves)."""
    old, new = BY_NAME[plan.float_type], BY_NAME[float_type]
    tensors = tuple(
        replace(tensor, info=replace(tensor.info, weight_type=new)) if tensor.info.weight_type == old else tensor
        for tensor in plan.tensors
    )
    fields = {**plan.fields, "general.file_type": _FILE_TYPES[float_type]}
    return replace(plan, float_type=float_type, fields=fields, tensors=tensors)


def write_base(plan: BasePlan, path: Path, progress: Callable[[int, int], None] | None = None) -> tuple[str, ...]:
    """Writes the file; returns a note for every tensor that had to become BF16. Raises CheckpointError, OSError."""
    total, written = plan.n_bytes, plan.n_header_bytes
    infos, notes = list(plan.infos), []
    with path.open("wb") as file:
        file.write(encode_header(plan.fields, infos))
        for index, tensor in enumerate(plan.tensors):
            largest = _write_tensor(file, tensor, tensor.info.weight_type.name)
            if largest is not None:
                file.seek(written)
                _write_tensor(file, tensor, "BF16")
                infos[index] = replace(tensor.info, weight_type=BY_NAME["BF16"])
                notes.append(f"'{tensor.info.name}' holds {largest:.3g}, beyond F16's {_F16_MAX:.0f}: kept as BF16")
            written += padded(tensor.info.n_bytes)
            file.write(b"\0" * (written - file.tell()))
            if progress is not None:
                progress(written, total)
        file.seek(0)
        file.write(encode_header(plan.fields, infos))
    return tuple(notes)


def _plan(stored: StoredTensor, rule: TensorRule, float_type: str) -> TensorPlan:
    if not stored.is_float or not stored.shape:
        raise CheckpointError(
            f"'{stored.name}' is {stored.dtype} of shape {list(stored.shape)}; weights are F32, F16 or BF16"
        )
    if min(stored.shape) < 1 or len(stored.shape) > 2:
        raise CheckpointError(f"'{stored.name}' has shape {list(stored.shape)}; a vector or a matrix was expected")
    if rule.permute_heads and stored.shape[0] % (2 * rule.permute_heads):
        raise CheckpointError(
            f"'{stored.name}' has {stored.shape[0]} rows, which {rule.permute_heads} heads do not divide"
        )
    info = TensorInfo(rule.gguf_name, stored.shape[::-1], BY_NAME[float_type], 0)
    if not may_quantize(info):
        info = replace(info, weight_type=BY_NAME["F32"])
    return TensorPlan(info, stored, rule)


def _check_shapes(plans: list[TensorPlan], h: Hparams) -> None:
    """The engine would refuse these at load; here the checkpoint's own words can be used."""
    kv_rows, q_rows = h.n_head_kv * h.head_size, h.n_head * h.head_size
    expected = {
        "attn_q.weight": (h.n_embd, q_rows),
        "attn_k.weight": (h.n_embd, kv_rows),
        "attn_v.weight": (h.n_embd, kv_rows),
    }
    seen: set[str] = set()
    for plan in plans:
        name = plan.info.name
        if name in seen:
            raise CheckpointError(f"two tensors of the checkpoint become '{name}'")
        seen.add(name)
        wanted = expected.get(name.split(".", 2)[-1])
        if wanted is not None and plan.info.shape != wanted:
            source = plan.stored.name if plan.stored else name
            raise CheckpointError(
                f"'{source}' has shape {list(plan.info.shape[::-1])}, config.json says {list(wanted[::-1])}"
            )
        if name == _EMBEDDING and plan.info.shape[0] != h.n_embd:
            raise CheckpointError(f"the embedding has rows of {plan.info.shape[0]}, config.json says {h.n_embd}")


def _write_tensor(file: BinaryIO, plan: TensorPlan, weight_type: str) -> float | None:
    """Writes the data; returns the largest value, unwritten in part, when it leaves F16's range."""
    for values in _slices(plan):
        low, high = float(values.min()), float(values.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            source = plan.stored.name if plan.stored else plan.info.name
            raise CheckpointError(f"'{source}' holds values that are not finite; the checkpoint is damaged")
        if weight_type == "F16" and max(-low, high) > _F16_MAX:
            return max(-low, high)
        file.write(_encoded(values, weight_type))
    return None


def _slices(plan: TensorPlan) -> Iterator[NDArray[np.float32]]:
    if plan.values is not None:
        yield plan.values
        return
    assert plan.stored is not None
    stored, rule = plan.stored, plan.rule
    if rule.permute_heads:
        yield _permuted(stored.read_rows(0, stored.n_rows), rule.permute_heads)
        return
    n_rows_slice = max(1, _SLICE_WEIGHTS // stored.n_row_weights)
    for start in range(0, stored.n_rows, n_rows_slice):
        values = stored.read_rows(start, min(start + n_rows_slice, stored.n_rows))
        yield values + np.float32(rule.shift) if rule.shift else values


def _permuted(values: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Each head's rows from two halves to interleaved pairs: transformers rotates halves, llama.cpp's Llama pairs."""
    n_half = values.shape[0] // n_heads // 2
    permuted: NDArray[np.float32] = (
        values.reshape(n_heads, 2, n_half, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    )
    return permuted


def _encoded(values: NDArray[np.float32], weight_type: str) -> bytes:
    if weight_type == "F32":
        return values.astype("<f4", copy=False).tobytes()
    if weight_type == "F16":
        return values.astype("<f2").tobytes()
    return _to_bf16(values).tobytes()


def _to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest, ties to even, as ggml_fp32_to_bf16 does. Values are finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    magnitude = bits & 0x7FFFFFFF
    rounded = np.minimum((magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16, 0x7F7F)  # the last value below infinity
    encoded: NDArray[np.uint16] = (rounded | (bits >> 16 & 0x8000)).astype("<u2")
    return encoded
