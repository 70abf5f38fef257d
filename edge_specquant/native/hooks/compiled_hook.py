"""A hook whose callback is in the kernel: its state in C, what that counts, and its end.

Takes a state and the addresses of the functions that compute its nodes. Knows nothing of weights.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ContextError, DecodeError
from ..library.library import engine, ggml
from .ggml_tensor import op_number
from .hooked import custom_nodes

_OPS = ("MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT")


class CompiledHook:
    """Owns `state`, which `free` frees; `params`: of a custom node for each address.

    Raises ContextError where there is no state.
    """

    def __init__(self, library: Any, state: int | None, callback: Any, free: Any, addresses: Sequence[int]) -> None:
        if not state:
            raise ContextError("no memory for the kernel's tables")
        self._library, self._free = library, free
        self._state: int | None = state
        op, attention, *self.params = custom_nodes((library.esq_attention_address(), *addresses), state)
        ops = np.array([*map(op_number, _OPS), op], dtype=np.int32)
        base = ggml()
        asked = (base.ggml_backend_buffer_is_host, base.ggml_backend_buffer_name)
        about_buffers = (ctypes.cast(function, ctypes.c_void_p) for function in asked)
        library.esq_set_ops(state, ops.ctypes.data, attention.ctypes.data, *about_buffers)
        kind: Any = engine().ggml_backend_sched_eval_callback
        self.callback: Any = ctypes.cast(callback, kind)
        self.data: int | None = state

    @property
    def n_taken(self) -> int:
        """Products and attentions turned over to the kernel so far; the engine keeps a graph it can use again."""
        return int(self._library.esq_n_taken(self._state))

    @property
    def is_exact(self) -> bool:
        """Whether all products and attentions so far were the kernel's, which computes alike at every width."""
        return self.n_taken > 0 and not self._library.esq_n_left(self._state)

    def check(self) -> None:
        """Raises DecodeError when a node of the last decode could not be computed."""
        if self._library.esq_n_failed(self._state):
            raise DecodeError("no memory for the kernel's activations; try a smaller --ctx or another sibling")

    def close(self) -> None:
        """Frees the state; twice is fine."""
        state, self._state = self._state, None
        if state:
            self._free(state)
