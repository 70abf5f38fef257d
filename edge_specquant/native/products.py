"""Ordinary weights by the compiled kernel: what makes a verification of a few tokens cost little more than one token.

The engine's products unpack every weight again for every column or two, so that four columns cost two to three times
one column (docs/kernel.md has the figures). The kernel unpacks a weight once for all columns of a strip. It takes the
products of F16, Q8_0, Q4_0 and Q4_K weights and leaves the rest to the engine. A column's sums are the same bits at
every width, so that the width of a verification cannot change a reply.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ..errors import ContextError, DecodeError
from .ggml_tensor import op_number
from .hooked import custom_nodes
from .kernel import Kernel, kernel
from .library import engine, ggml

ENGINES_OWN = "engine"
FASTER = ("AVX-512 VNNI", "AVX-VNNI", "AVX2")
"""Instruction sets with which the kernel beats the engine's own products of ordinary weights: see docs/kernel.md."""


class ProductsHook:
    """The hook of one context on ordinary weights in main memory. Raises ContextError."""

    def __init__(self, kernel: Kernel) -> None:
        self._library = library = kernel.library
        base = ggml()
        is_host, name_of = base.ggml_backend_buffer_is_host, base.ggml_backend_buffer_name
        self._state = library.esq_plain_new(
            kernel.level,
            op_number("NONE"),
            op_number("MUL_MAT"),
            ctypes.cast(is_host, ctypes.c_void_p),
            ctypes.cast(name_of, ctypes.c_void_p),
        )
        if not self._state:
            raise ContextError("no memory for the kernel's tables")
        op, params = custom_nodes([library.esq_plain_address()], self._state)
        library.esq_plain_set_template(self._state, op, params.ctypes.data)
        kind: Any = engine().ggml_backend_sched_eval_callback
        self.callback: Any = ctypes.cast(library.esq_plain_callback, kind)
        self.data: int | None = self._state

    @property
    def n_taken(self) -> int:
        """Products turned over to the kernel so far; the engine keeps a graph it can use again."""
        return int(self._library.esq_plain_n_taken(self._state))

    def check(self) -> None:
        """Raises DecodeError when a product could not be computed."""
        if self._library.esq_plain_n_failed(self._state):
            raise DecodeError("no memory for the kernel's activations; try a smaller --ctx or another sibling")

    def close(self) -> None:
        """Frees the tables; twice is fine."""
        state, self._state = self._state, None
        if state:
            self._library.esq_plain_free(state)


def fast_products() -> ProductsHook | None:
    """A hook for one context, None where the engine's own products are the faster ones or nothing can be compiled."""
    faster = _faster_kernel()
    return ProductsHook(faster) if faster else None


def products_key() -> str:
    """Names whose products are computed, for caches of measurements and for records: the kernel's or the engine's."""
    faster = _faster_kernel()
    return f"kernel {faster.name} {faster.version}" if faster else ENGINES_OWN


def _faster_kernel() -> Kernel | None:
    """The kernel where it beats the engine's own products of any ordinary weights."""
    found = kernel()
    return found if isinstance(found, Kernel) and found.name in FASTER else None
