"""ggml_tensor as ctypes sees it, and the numbers of operations: what an eval callback needs to read a graph node."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ..library.library import ggml

F32, Q4_0, Q8_0, I32 = 0, 2, 8, 26
N_OP_PARAMS = 16


class Tensor(ctypes.Structure):
    """struct ggml_tensor (ggml.h), as far as `name`."""


Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * N_OP_PARAMS),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * 10),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]


def at(pointer: Any) -> Tensor:
    """The tensor behind a C pointer or an address."""
    tensor: Tensor = ctypes.cast(pointer, ctypes.POINTER(Tensor)).contents
    return tensor


@functools.cache
def op_number(name: str) -> int:
    """The number of an operation of this engine build, by its name (ggml_op_name). Raises KeyError."""
    library = ggml()
    library.ggml_op_name.restype = ctypes.c_char_p
    number = 0
    while (found := library.ggml_op_name(number)) not in (None, b"GLU"):  # GLU is the last of the list
        if found == name.encode():
            return number
        number += 1
    raise KeyError(name)
