"""What makes a context of the base model compute with both planes: an eval callback of the engine, compiled.

`KernelHook` rewrites the base's products, while the engine asks about them, into operations that read both planes in
one pass; `nested_plain.py` is the way without a compiler. Tensors are known by name only, so that every architecture
with known weights works.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextError, DecodeError
from .ggml_arena import Arena
from .ggml_tensor import F32, N_OP_PARAMS, at, op_number
from .library import engine, ggml
from .nested_kernel import Kernel
from .nested_planes import (
    BASE_BLOCK_BYTES,
    GROUP_ROWS,
    Plane,
)

_ALL_THREADS = -1


class PlaneFiles:
    """Both files mapped once, for all contexts of a model."""

    def __init__(self, base: Path, residual: Path, planes: Sequence[Plane]) -> None:
        self.planes = tuple(sorted(planes, key=lambda plane: plane.name.encode()))
        self._base = np.memmap(base, dtype=np.uint8, mode="r")
        self._residual = np.memmap(residual, dtype=np.uint8, mode="r")

    def base(self, plane: Plane) -> NDArray[np.uint8]:
        """Rows x blocks x 18 bytes."""
        part = self._base[plane.base_offset : plane.base_offset + plane.n_base_bytes]
        return part.reshape(plane.n_rows, plane.n_blocks, BASE_BLOCK_BYTES)

    def residual(self, plane: Plane) -> NDArray[np.uint8]:
        """The plane's bytes as the file holds them."""
        return self._residual[plane.residual_offset : plane.residual_offset + plane.n_residual_bytes]


class Hook(Protocol):
    """What makes a context nested: a C callback with its data, asked after every decode how it went."""

    callback: Any
    data: int | None

    def check(self) -> None:
        """Raises DecodeError when a product of the last decode was not done with both planes."""
        ...

    def close(self) -> None:
        """Frees what the callback used; close the context first."""
        ...


class KernelHook:
    """The compiled way; without the residual it is the base alone, by the same code. Raises ContextError."""

    def __init__(self, kernel: Kernel, files: PlaneFiles, *, with_residual: bool = True) -> None:
        self._library = library = kernel.library
        self._files = files  # the kernel reads the mapping: keep it
        self._state = library.esq_new(len(files.planes), kernel.level, op_number("MUL_MAT"), op_number("GET_ROWS"))
        if not self._state:
            raise ContextError("no memory for the nested kernel's tables")
        for index, plane in enumerate(files.planes):
            sample = np.ascontiguousarray(files.base(plane)[:GROUP_ROWS, 0]).tobytes()
            address = files.residual(plane).ctypes.data if with_residual else None
            library.esq_set_weight(self._state, index, plane.name.encode(), plane.n_cols, plane.n_rows, address, sample)
        addresses = (library.esq_mul_mat_address(), library.esq_get_rows_address())
        op, *params = _custom_nodes(addresses, self._state)
        library.esq_set_template(self._state, op, *(array.ctypes.data for array in params))
        kind: Any = engine().ggml_backend_sched_eval_callback
        self.callback: Any = ctypes.cast(library.esq_callback, kind)
        self.data: int | None = self._state
        self._all_seen = False

    def check(self) -> None:
        """Raises DecodeError naming how many products lacked their residual."""
        library = self._library
        if library.esq_n_failed(self._state):
            raise DecodeError("no memory for the nested kernel's activations; try a smaller --ctx or another sibling")
        refused = library.esq_n_refused(self._state)
        unseen = 0 if self._all_seen else library.esq_n_unseen(self._state)
        if refused or unseen:
            raise DecodeError(
                f"{refused} products of nested weights could not take their residual and {unseen} nested weights were "
                "never asked for; run with EDGE_SPECQUANT_NESTED_KERNEL=0"
            )
        self._all_seen = True

    def close(self) -> None:
        """Frees the tables; twice is fine."""
        state, self._state = self._state, None
        if state:
            self._library.esq_free(state)


def _custom_nodes(addresses: Sequence[int], user_data: int) -> tuple[Any, ...]:
    """The engine's own custom nodes for C functions at these addresses: operation number, then parameters of each."""
    library = ggml()
    new = library.ggml_custom_4d
    new.restype = ctypes.c_void_p
    new.argtypes = [ctypes.c_void_p, ctypes.c_int, *[ctypes.c_int64] * 4, ctypes.c_void_p, ctypes.c_int]
    new.argtypes += [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    op, params = 0, []
    with Arena(len(addresses)) as arena:
        for address in addresses:
            node = at(new(arena.handle, F32, 1, 1, 1, 1, None, 0, address, _ALL_THREADS, user_data))
            op = node.op
            params.append(np.array(node.op_params[:N_OP_PARAMS], dtype=np.int32))
    return (op, *params)
