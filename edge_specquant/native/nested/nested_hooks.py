"""What makes a context of the base model compute with both planes: the kernel, told the weights by name.

`nested_plain.py` is the way without a compiler. Tensors are known by name only, so that every architecture with known
weights works.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import DecodeError
from ..hooks.compiled_hook import CompiledHook
from ..hooks.ggml_tensor import op_number
from ..kernel import Kernel
from ..kernel.nested_planes import BASE_BLOCK_BYTES, GROUP_ROWS, Plane


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


class KernelHook(CompiledHook):
    """The compiled way. Raises ContextError."""

    def __init__(self, kernel: Kernel, files: PlaneFiles) -> None:
        library = kernel.library
        self._files = files  # the kernel reads the mapping: keep it
        state = library.esq_new(len(files.planes), kernel.level, op_number("GET_ROWS"))
        addresses = (library.esq_mul_mat_address(), library.esq_get_rows_address())
        super().__init__(library, state, library.esq_callback, library.esq_free, addresses)
        for index, plane in enumerate(files.planes):
            sample = np.ascontiguousarray(files.base(plane)[:GROUP_ROWS, 0]).tobytes()
            address = files.residual(plane).ctypes.data
            library.esq_set_weight(state, index, plane.name.encode(), plane.n_cols, plane.n_rows, address, sample)
        library.esq_set_template(state, *(array.ctypes.data for array in self.params))
        self._all_seen = False

    def check(self) -> None:
        """Raises DecodeError naming how many products lacked their residual."""
        super().check()
        library = self._library
        refused = library.esq_n_refused(self._state)
        unseen = 0 if self._all_seen else library.esq_n_unseen(self._state)
        if refused or unseen:
            raise DecodeError(
                f"{refused} products of nested weights could not take their residual and {unseen} nested weights were "
                "never asked for; run with EDGE_SPECQUANT_KERNEL=0"
            )
        self._all_seen = True
