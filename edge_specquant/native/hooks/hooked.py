"""Contexts whose matrix products are not the engine's own: an eval callback rewrites them while the engine asks.

Gives the protocol of such a callback, the context that carries one, and the engine's custom nodes that a compiled
callback puts in the place of its products. Knows nothing of which products, nor of weights.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..context import NativeContext
from ..library.library import ggml
from ..protocol import ContextParams
from .ggml_arena import Arena
from .ggml_tensor import F32, N_OP_PARAMS, at

_ALL_THREADS = -1


class Hook(Protocol):
    """A C callback with its data, asked after every decode how it went."""

    callback: Any
    data: int | None

    @property
    def is_exact(self) -> bool:
        """Whether whatever was computed so far has the same bits at every width."""
        ...

    def check(self) -> None:
        """Raises DecodeError when a product of the last decode was not done as it should."""
        ...

    def close(self) -> None:
        """Frees what the callback used; close the context first."""
        ...


class HookedContext(NativeContext):
    """A context with a hook, which it owns."""

    def __init__(self, model_handle: Any, params: ContextParams, hook: Hook, *, name: str) -> None:
        self._hook = hook
        hooked = dataclasses.replace(params, eval_callback=hook.callback, eval_callback_data=hook.data)
        try:
            super().__init__(model_handle, hooked, name=name)
        except BaseException:
            hook.close()
            raise

    @property
    def is_exact(self) -> bool:
        """Whether a token has the same bits at every width and beside any cells; False before the first decode."""
        return self._hook.is_exact

    def _raise_for(self, code: int, n_past: int, n: int) -> None:
        """Called after every decode: also raises what the hook found."""
        super()._raise_for(code, n_past, n)
        self._hook.check()

    def close(self) -> None:
        """Frees cache and buffers, then what the hook held; twice is fine."""
        super().close()
        self._hook.close()


def custom_nodes(addresses: Sequence[int], user_data: int) -> tuple[Any, ...]:
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
