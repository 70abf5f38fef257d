"""One GGUF file to another with other weight types, by llama.cpp's own quantizer.

Blocks until done and may abort the process on a broken file: callers run it in a child (`gguf/quantize/quantize.py`).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import QuantizeError, UsageError
from .library.library import engine, log_sink

_FILE_TYPES = {
    "F32": "LLAMA_FTYPE_ALL_F32",
    "F16": "LLAMA_FTYPE_MOSTLY_F16",
    "BF16": "LLAMA_FTYPE_MOSTLY_BF16",
    "Q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0",
    "Q6_K": "LLAMA_FTYPE_MOSTLY_Q6_K",
    "Q5_K": "LLAMA_FTYPE_MOSTLY_Q5_K_M",
    "Q5_1": "LLAMA_FTYPE_MOSTLY_Q5_1",
    "Q5_0": "LLAMA_FTYPE_MOSTLY_Q5_0",
    "Q4_K": "LLAMA_FTYPE_MOSTLY_Q4_K_M",
    "Q4_1": "LLAMA_FTYPE_MOSTLY_Q4_1",
    "Q4_0": "LLAMA_FTYPE_MOSTLY_Q4_0",
    "IQ4_NL": "LLAMA_FTYPE_MOSTLY_IQ4_NL",
    "Q3_K": "LLAMA_FTYPE_MOSTLY_Q3_K_M",
    "Q2_K": "LLAMA_FTYPE_MOSTLY_Q2_K",
}
_MAX_BUFFER_BYTES = 256 << 20  # of rows in work at once; the engine's default of 8 GiB would hold any tensor whole
_UNNAMED_WEIGHT_TYPES = {"BF16": 30}  # ggml.h; the bindings have no constant for it


def quantize(
    source: Path,
    target: Path,
    *,
    ftype: str,
    tensor_types: Mapping[str, str] | None = None,
    imatrix: Mapping[str, NDArray[np.float32]] | None = None,
    n_threads: int = 0,
) -> None:
    """Writes target from source (llama_model_quantize, pure: the file type's weight type unless named).

    tensor_types: exact tensor name -> weight type, for tensors that differ from ftype; ignored by the engine when
    ftype is a float type. imatrix: tensor name -> importance per input column. n_threads 0 takes every core. Raises
    QuantizeError, UsageError.
    """
    lib = engine()
    params = lib.llama_model_quantize_default_params()
    params.nthread = n_threads
    params.ftype = _file_type(lib, ftype)
    params.allow_requantize = True
    params.quantize_output_tensor = True
    params.pure = True
    params.max_buf_size = _MAX_BUFFER_BYTES
    kept: list[Any] = []  # ctypes storage that must outlive the call
    if tensor_types:
        params.tt_overrides = _overrides(lib, tensor_types, kept)
    if imatrix:
        params.imatrix = _imatrix(lib, imatrix, kept)
    _write(lib, source, target, params, f"to {ftype}")


def prune(source: Path, target: Path, layers: Sequence[int]) -> None:
    """Writes target as a copy of source without these layers; the others are numbered anew. Raises QuantizeError."""
    lib = engine()
    params = lib.llama_model_quantize_default_params()
    params.only_copy = True
    dropped = (ctypes.c_int32 * (len(layers) + 1))(*sorted(layers), -1)
    params.prune_layers = dropped
    _write(lib, source, target, params, f"without {len(layers)} layers")


def _write(lib: Any, source: Path, target: Path, params: Any, what: str) -> None:
    log_sink.clear()
    code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params))
    if code != 0:
        raise QuantizeError(f"{source.name} {what} failed: {log_sink.errors() or f'the engine returned {code}'}")


def _file_type(lib: Any, ftype: str) -> int:
    try:
        return int(getattr(lib, _FILE_TYPES[ftype.upper()]))
    except KeyError:
        raise UsageError(f"'{ftype}' is not a weight type; use one of {', '.join(_FILE_TYPES)}") from None


def _weight_type(lib: Any, name: str) -> int:
    try:
        return int(_UNNAMED_WEIGHT_TYPES.get(name.upper()) or getattr(lib, f"GGML_TYPE_{name.upper()}"))
    except AttributeError:
        raise UsageError(f"'{name}' is not a weight type this engine knows") from None


def _overrides(lib: Any, tensor_types: Mapping[str, str], kept: list[Any]) -> Any:
    """llama.cpp matches overrides by regex search; anchored and escaped, each names one tensor."""
    array = (lib.llama_model_tensor_override * (len(tensor_types) + 1))()
    for slot, (name, weight_type) in zip(array, tensor_types.items(), strict=False):
        slot.pattern = f"^{re.escape(name)}$".encode()
        slot.type = _weight_type(lib, weight_type)
    array[len(tensor_types)].pattern = None
    kept.append(array)
    return array


def _imatrix(lib: Any, imatrix: Mapping[str, NDArray[np.float32]], kept: list[Any]) -> Any:
    array = (lib.llama_model_imatrix_data * (len(imatrix) + 1))()
    for slot, (name, importance) in zip(array, imatrix.items(), strict=False):
        values = np.ascontiguousarray(importance, dtype=np.float32).ravel()
        kept.append(values)
        slot.name = name.encode()
        slot.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        slot.size = values.size
    array[len(imatrix)].name = None
    kept.append(array)
    return array
