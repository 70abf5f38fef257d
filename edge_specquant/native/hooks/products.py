"""Ordinary weights and attention by the compiled kernel: what makes a verification cost little more than one token.

The engine's products unpack every weight again for every column or two, and its attention reads the cache again for
every query, so that four columns cost two to three times one column (docs/kernel.md has the figures). The kernel does
either once for all columns of a strip. It takes the products of F16, Q8_0, Q4_0 and Q4_K weights and attention over
half floats and Q8_0, and leaves the rest to the engine. A column's sums are the same bits at every width, so that the
width of a verification cannot change a reply.
"""

from __future__ import annotations

from ..kernel import Kernel, kernel
from .compiled_hook import CompiledHook
from .ggml_tensor import op_number

ENGINES_OWN = "engine"
FASTER = ("AVX-512 VNNI", "AVX-VNNI", "AVX2")
"""Instruction sets with which the kernel beats the engine's own products of ordinary weights: see docs/kernel.md."""


class ProductsHook(CompiledHook):
    """The hook of one context on ordinary weights in main memory. Raises ContextError."""

    def __init__(self, kernel: Kernel) -> None:
        library = kernel.library
        state = library.esq_plain_new(kernel.level, op_number("NONE"))
        super().__init__(
            library, state, library.esq_plain_callback, library.esq_plain_free, [library.esq_plain_address()]
        )
        library.esq_plain_set_template(state, self.params[0].ctypes.data)


def fast_products() -> ProductsHook | None:
    """A hook for one context, None where the engine's own products are the faster ones or nothing can be compiled."""
    faster = _faster_kernel()
    return ProductsHook(faster) if faster else None


def products_key(*, use_kernel: bool = True) -> str:
    """Names whose products are computed, for caches of measurements and for records: the kernel's or the engine's."""
    faster = _faster_kernel() if use_kernel else None
    return f"kernel {faster.name} {faster.version}" if faster else ENGINES_OWN


def _faster_kernel() -> Kernel | None:
    """The kernel where it beats the engine's own products of any ordinary weights."""
    found = kernel()
    return found if isinstance(found, Kernel) and found.name in FASTER else None
