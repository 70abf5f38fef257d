"""Watches matrix products while a context computes: the activations that meet each named weight.

Gives the object that `ContextParams.eval_callback` takes. Mirrors the collecting callback of llama.cpp's imatrix tool:
asked about a graph node first, then called again with its data in place. Knows nothing of what is made of the numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..library.library import engine, ggml
from .ggml_tensor import F32, Tensor, at

Receive = Callable[[str, NDArray[np.float32]], None]
"""Called with the weight's name and the activations, shape (n_tokens, n_columns); the array is the caller's to keep."""

_MUL_MAT_NAME = b"MUL_MAT"


class MatMulWatcher:
    """Passes the inputs of every wanted matrix product to `receive`. Keep it alive as long as its context.

    An exception in `receive` (Ctrl-C too) stops the computation and is raised by `check`, since C cannot carry it.
    """

    def __init__(self, wants: Callable[[str], bool], receive: Receive) -> None:
        self._wants = wants
        self._receive = receive
        self._error: BaseException | None = None
        self._library = ggml()
        self._library.ggml_op_name.restype = ctypes.c_char_p
        self._library.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2
        self._ops: dict[int, bool] = {}
        kind: Any = engine().ggml_backend_sched_eval_callback
        self.callback: Any = kind(self._called)

    def check(self) -> None:
        """Raises what went wrong inside the callback; call it after every decode."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _called(self, pointer: Any, ask: bool, _user_data: Any) -> bool:
        try:
            return self._handle(pointer, ask)
        except BaseException as error:
            self._error = error
            return False

    def _handle(self, pointer: Any, ask: bool) -> bool:
        node = at(pointer)
        if not self._is_product(node.op):
            return not ask  # not asked: a node we did not want; let it run on
        weight, inputs = node.src[0].contents, node.src[1].contents
        name = weight.name.decode("utf-8", "replace")
        if ask:
            return inputs.type == F32 and self._wants(name)
        self._receive(name, self._read(inputs, node.src[1]))
        return True

    def _is_product(self, op: int) -> bool:
        if op not in self._ops:
            self._ops[op] = self._library.ggml_op_name(op) == _MUL_MAT_NAME
        return self._ops[op]

    def _read(self, tensor: Tensor, pointer: Any) -> NDArray[np.float32]:
        n_columns = int(tensor.ne[0])
        n_rows = int(tensor.ne[1] * tensor.ne[2] * tensor.ne[3])
        values = np.empty((n_rows, n_columns), dtype=np.float32)
        self._library.ggml_backend_tensor_get(pointer, values.ctypes.data, 0, values.nbytes)
        return values
