"""Two ways to let a context of the base model compute with both planes, as eval callbacks of the engine.

`KernelHook` (compiled) rewrites the base's products, while the engine asks about them, into operations that read both
planes in one pass. `PlainHook` (no compiler needed, any kind of residual) lets the engine do the base's product and
adds the residual's after it. Both know tensors by name only, so that every architecture with known weights works.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextError, DecodeError
from .ggml_tensor import F32, I32, N_OP_PARAMS, Q4_0, Tensor, at, op_number
from .library import engine, ggml
from .nested_kernel import Kernel
from .nested_planes import (
    BASE_BLOCK_BYTES,
    FREE_TYPES,
    GROUP_ROWS,
    TIED,
    Plane,
    dequantized,
    residual_as_q4_0,
    ungrouped,
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
    with _Arena(len(addresses)) as arena:
        for address in addresses:
            node = at(new(arena.handle, F32, 1, 1, 1, 1, None, 0, address, _ALL_THREADS, user_data))
            op = node.op
            params.append(np.array(node.op_params[:N_OP_PARAMS], dtype=np.int32))
    return (op, *params)


class PlainHook:
    """The way without a compiler: a graph of two nodes, residual product and sum, for each weight and width."""

    def __init__(self, files: PlaneFiles, n_threads: int) -> None:
        self._library = _declared_ggml()
        self._planes = {plane.name.encode(): _PlainPlane(files, plane) for plane in files.planes}
        self._unseen = set(self._planes)
        self._ops = {op_number("MUL_MAT"): self._multiply, op_number("GET_ROWS"): self._add_rows}
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._arenas: list[_Arena] = []
        self._scratch = np.empty(0, dtype=np.float32)
        self._error: BaseException | None = None
        self._backend = self._library.ggml_backend_cpu_init()
        self._library.ggml_backend_cpu_set_n_threads(self._backend, n_threads or max(1, (os.cpu_count() or 2) // 2))
        kind: Any = engine().ggml_backend_sched_eval_callback
        self.callback: Any = kind(self._called)
        self.data: int | None = None

    def check(self) -> None:
        """Raises what went wrong inside the callback, or DecodeError when a weight was never asked for."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._unseen:
            name = next(iter(self._unseen)).decode()
            raise DecodeError(f"{len(self._unseen)} nested weights were never asked for, '{name}' for one")

    def close(self) -> None:
        """Frees graphs and backend; twice is fine."""
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()
        self._graphs.clear()
        backend, self._backend = self._backend, None
        if backend:
            self._library.ggml_backend_free(backend)

    def _called(self, pointer: Any, ask: bool, _user_data: Any) -> bool:
        try:
            node = at(pointer)
            add = self._ops.get(node.op)
            if add is None:
                return not ask
            name = node.src[0].contents.name
            plane = self._planes.get(name)
            if plane is None or node.src[0].contents.type != Q4_0:
                return not ask
            if not ask:
                self._unseen.discard(name)
                if node.ne[1] > 0:  # no logits asked for: the head has nothing to do
                    add(plane, node)
            return True
        except BaseException as error:  # C cannot carry it: `check` raises it
            self._error = error
            return False

    def _multiply(self, plane: _PlainPlane, node: Tensor) -> None:
        inputs = node.src[1].contents
        if inputs.type != F32 or inputs.ne[2] * inputs.ne[3] != 1 or inputs.nb[1] != 4 * inputs.ne[0]:
            raise DecodeError(f"the input of '{plane.name}' is of a kind that nested weights cannot take")
        n = int(node.ne[1])
        key = (id(plane), n)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._build(plane, n)
        graph.x.data, graph.y.data, graph.sum.data = inputs.data, node.data, node.data
        graph.product.data = self._scratch_for(n * plane.n_rows)
        if self._library.ggml_backend_graph_compute(self._backend, graph.handle) != 0:
            raise DecodeError(f"the residual product of '{plane.name}' failed")

    def _add_rows(self, plane: _PlainPlane, node: Tensor) -> None:
        ids_tensor = node.src[1].contents
        if ids_tensor.type != I32:
            raise DecodeError(f"the rows of '{plane.name}' are asked for in an unknown way")
        n = int(ids_tensor.ne[0])
        ids = np.ctypeslib.as_array((ctypes.c_int32 * n).from_address(ids_tensor.data))
        out = np.ctypeslib.as_array((ctypes.c_float * (n * plane.n_cols)).from_address(node.data))
        out.reshape(n, plane.n_cols)[:] += plane.dequantized(ids)

    def _scratch_for(self, n_values: int) -> int:
        if self._scratch.size < n_values:
            self._scratch = np.empty(n_values, dtype=np.float32)
        return self._scratch.ctypes.data

    def _build(self, plane: _PlainPlane, n: int) -> _Graph:
        library, arena = self._library, _Arena(5, with_graph=True)
        self._arenas.append(arena)
        weight = library.ggml_new_tensor_2d(arena.handle, plane.ggml_type, plane.n_cols, plane.n_rows)
        x = library.ggml_new_tensor_2d(arena.handle, F32, plane.n_cols, n)
        y = library.ggml_new_tensor_2d(arena.handle, F32, plane.n_rows, n)
        at(weight).data = plane.blocks.ctypes.data
        product = library.ggml_mul_mat(arena.handle, weight, x)
        total = library.ggml_add_inplace(arena.handle, y, product)
        handle = library.ggml_new_graph_custom(arena.handle, _Arena.GRAPH_NODES, False)
        library.ggml_build_forward_expand(handle, total)
        return _Graph(handle, at(x), at(y), at(product), at(total))


class _PlainPlane:
    """A residual as blocks that ggml multiplies: as mapped, or made from a tied one (4.5 bits a weight in memory)."""

    def __init__(self, files: PlaneFiles, plane: Plane) -> None:
        self.name, self.n_cols, self.n_rows = plane.name, plane.n_cols, plane.n_rows
        self._kind = "Q4_0" if plane.kind == TIED else plane.kind
        self.ggml_type = FREE_TYPES[self._kind]
        residual = files.residual(plane)
        if plane.kind == TIED:
            nibbles = ungrouped(residual, plane.n_rows, plane.n_blocks)
            self.blocks = residual_as_q4_0(files.base(plane), nibbles).reshape(plane.n_rows, -1)
        else:
            self.blocks = residual.reshape(plane.n_rows, -1)

    def dequantized(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """The residual of these rows, shape (n, n_cols)."""
        return dequantized(self.blocks[rows], self._kind)


class _Graph:
    """Handles of one built graph, whose data pointers are set before every use."""

    __slots__ = ("handle", "product", "sum", "x", "y")

    def __init__(self, handle: int, x: Tensor, y: Tensor, product: Tensor, total: Tensor) -> None:
        self.handle, self.x, self.y, self.product, self.sum = handle, x, y, product, total


class _Arena:
    """A ggml_context for a few tensors without data."""

    GRAPH_NODES = 8

    def __init__(self, n_tensors: int, *, with_graph: bool = False) -> None:
        self._library = library = _declared_ggml()
        size = n_tensors * library.ggml_tensor_overhead() + 256
        if with_graph:
            size += library.ggml_graph_overhead_custom(self.GRAPH_NODES, False)
        self.handle = library.ggml_init(_InitParams(size, None, True))

    def __enter__(self) -> _Arena:
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


def _declared_ggml() -> Any:
    """libggml with the signatures used here (ggml.h, ggml-backend.h, ggml-cpu.h)."""
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
        "ggml_backend_cpu_init": (pointer, []),
        "ggml_backend_cpu_set_n_threads": (None, [pointer, ctypes.c_int]),
        "ggml_backend_graph_compute": (ctypes.c_int, [pointer] * 2),
        "ggml_backend_free": (None, [pointer]),
    }
    library = ggml()
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
