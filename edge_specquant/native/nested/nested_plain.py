"""Nested products without a compiler: the engine does the base's product, a callback adds the residual's after it.

For any kind of residual. A tied one is made into a Q4_0 tensor first, which costs its memory again.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ContextError, DecodeError
from ..hooks.ggml_arena import Arena, declared_ggml
from ..hooks.ggml_tensor import F32, I32, Q4_0, Tensor, at, op_number
from ..kernel.nested_planes import FREE_TYPES, TIED, Plane, dequantized, residual_as_q4_0, ungrouped
from ..library.backends import CPU_DEVICE, cpu_function
from ..library.library import engine
from .nested_hooks import PlaneFiles


class PlainHook:
    """The way without a compiler: a graph of two nodes, residual product and sum, for each weight and width."""

    def __init__(self, files: PlaneFiles, n_threads: int) -> None:
        self._library = declared_ggml()
        self._planes = {plane.name.encode(): _PlainPlane(files, plane) for plane in files.planes}
        self._unseen = set(self._planes)
        self._ops = {op_number("MUL_MAT"): self._multiply, op_number("GET_ROWS"): self._add_rows}
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._arenas: list[Arena] = []
        self._scratch = np.empty(0, dtype=np.float32)
        self._error: BaseException | None = None
        self._backend = _cpu_backend(self._library, n_threads or max(1, (os.cpu_count() or 2) // 2))
        kind: Any = engine().ggml_backend_sched_eval_callback
        self.callback: Any = kind(self._called)
        self.data: int | None = None

    is_exact = False

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
        library, arena = self._library, Arena(5, with_graph=True)
        self._arenas.append(arena)
        weight = library.ggml_new_tensor_2d(arena.handle, plane.ggml_type, plane.n_cols, plane.n_rows)
        x = library.ggml_new_tensor_2d(arena.handle, F32, plane.n_cols, n)
        y = library.ggml_new_tensor_2d(arena.handle, F32, plane.n_rows, n)
        at(weight).data = plane.blocks.ctypes.data
        product = library.ggml_mul_mat(arena.handle, weight, x)
        total = library.ggml_add_inplace(arena.handle, y, product)
        handle = library.ggml_new_graph_custom(arena.handle, Arena.GRAPH_NODES, False)
        library.ggml_build_forward_expand(handle, total)
        return _Graph(handle, at(x), at(y), at(product), at(total))


def _cpu_backend(library: Any, n_threads: int) -> Any:
    """A CPU backend of our own. Asked for by its kind: it may lie in a library that libggml is not linked to."""
    backend = library.ggml_backend_init_by_type(CPU_DEVICE, None)
    address = cpu_function(library, "ggml_backend_set_n_threads")
    if not backend or not address:
        raise ContextError("the engine's CPU backend does not start; its version is not the pinned one")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(address)(backend, n_threads)
    return backend


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
