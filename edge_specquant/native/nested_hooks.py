"""What makes a context of the base model compute with both planes: the kernel, told the weights by name.

`nested_plain.py` is the way without a compiler. Tensors are known by name only, so that every architecture with known
weights works.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextError, DecodeError
from .ggml_tensor import op_number
from .hooked import custom_nodes
from .kernel import Kernel
from .library import engine
from .nested_planes import (
    BASE_BLOCK_BYTES,
    GROUP_ROWS,
    Plane,
)


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


class KernelHook:
    """The compiled way. Raises ContextError."""

    def __init__(self, kernel: Kernel, files: PlaneFiles) -> None:
        self._library = library = kernel.library
        self._files = files  # the kernel reads the mapping: keep it
        self._state = library.esq_new(len(files.planes), kernel.level, op_number("MUL_MAT"), op_number("GET_ROWS"))
        if not self._state:
            raise ContextError("no memory for the nested kernel's tables")
        for index, plane in enumerate(files.planes):
            sample = np.ascontiguousarray(files.base(plane)[:GROUP_ROWS, 0]).tobytes()
            address = files.residual(plane).ctypes.data
            library.esq_set_weight(self._state, index, plane.name.encode(), plane.n_cols, plane.n_rows, address, sample)
        addresses = (library.esq_mul_mat_address(), library.esq_get_rows_address())
        op, *params = custom_nodes(addresses, self._state)
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
                "never asked for; run with EDGE_SPECQUANT_KERNEL=0"
            )
        self._all_seen = True

    def close(self) -> None:
        """Frees the tables; twice is fine."""
        state, self._state = self._state, None
        if state:
            self._library.esq_free(state)
