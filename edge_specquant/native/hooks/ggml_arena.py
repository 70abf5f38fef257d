"""A little memory of ggml's own for tensors and graphs without data, and the ggml functions that work on them."""

from __future__ import annotations

import ctypes
from typing import Any

from ..library.library import ggml


class Arena:
    """A ggml_context for a few tensors without data."""

    GRAPH_NODES = 8

    def __init__(self, n_tensors: int, *, with_graph: bool = False) -> None:
        self._library = library = declared_ggml()
        size = n_tensors * library.ggml_tensor_overhead() + 256
        if with_graph:
            size += library.ggml_graph_overhead_custom(self.GRAPH_NODES, False)
        self.handle = library.ggml_init(_InitParams(size, None, True))

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle:
            self._library.ggml_free(handle)


class _InitParams(ctypes.Structure):
    """struct ggml_init_params (ggml.h)."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def declared_ggml() -> Any:
    """libggml with the signatures used here (ggml.h, ggml-backend.h)."""
    pointer, i64, size = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ggml_init": (pointer, [_InitParams]),
        "ggml_free": (None, [pointer]),
        "ggml_tensor_overhead": (size, []),
        "ggml_graph_overhead_custom": (size, [size, ctypes.c_bool]),
        "ggml_new_tensor_2d": (pointer, [pointer, ctypes.c_int, i64, i64]),
        "ggml_mul_mat": (pointer, [pointer] * 3),
        "ggml_add_inplace": (pointer, [pointer] * 3),
        "ggml_new_graph_custom": (pointer, [pointer, size, ctypes.c_bool]),
        "ggml_build_forward_expand": (None, [pointer] * 2),
        "ggml_backend_init_by_type": (pointer, [ctypes.c_int, ctypes.c_char_p]),
        "ggml_backend_graph_compute": (ctypes.c_int, [pointer] * 2),
        "ggml_backend_free": (None, [pointer]),
    }
    library = ggml()
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
