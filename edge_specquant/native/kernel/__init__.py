"""The compiled kernel of products and attention: built once where a C compiler is, or ahead, and proven against numpy.

Takes nothing, gives a loaded library or the reason why there is none. Knows nothing of models.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import config
from ..library.engine_key import engine_key
from .compile import AHEAD, compile_into, compiler, source_text
from .proof import is_right

LEVELS = ("plain C", "AVX2", "AVX-512 VNNI", "SDOT", "AVX-VNNI", "AVX-VNNI as AVX-512 encodes it")


@dataclass(frozen=True, slots=True)
class Kernel:
    """The loaded library, the instruction set it will use, and a hash of its bytes."""

    library: Any
    level: int
    version: str

    @property
    def name(self) -> str:
        """The instruction set."""
        return LEVELS[self.level]


@functools.cache
def kernel() -> Kernel | str:
    """The kernel, built if need be and proven right here; or a sentence on why there is none."""
    if os.environ.get("EDGE_SPECQUANT_KERNEL", "").lower() in ("0", "off", "no"):
        return "the kernel is switched off by EDGE_SPECQUANT_KERNEL"
    if sys.platform == "win32":
        return "the kernel needs gcc or clang; on Windows the engine's own products are taken"
    built = _build()
    if isinstance(built, str):
        return built
    try:
        library = _declared(ctypes.CDLL(str(built)))
    except OSError as error:
        return f"the kernel cannot be loaded: {error}"
    except AttributeError:
        return "the kernel in this package is of another version; install the package again"
    level = library.esq_best_level()
    if level == 0:  # plain C is a reference, far behind the engine's own products
        return "the kernel has no code for this processor's instruction sets; the engine's own products are taken"
    if not is_right(library, level):
        return f"the kernel ({LEVELS[level]}) computes wrongly when compiled on this machine"
    return Kernel(library, level, hashlib.sha256(built.read_bytes()).hexdigest()[:8])


def _build() -> Path | str:
    """The compiled library, from the cache when source, compiler and processor are those it was built for."""
    command = compiler()
    if command is None and AHEAD.is_file():
        return AHEAD
    if command is None:
        return "there is no C compiler here (gcc or clang), so the engine's own products are taken"
    try:
        parts = (source_text(), " ".join(command).encode(), engine_key().encode())
    except OSError as error:
        return f"the kernel's source is missing: {error}"
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    target = config.cache_dir() / "kernels" / f"products-{key}.so"
    if target.is_file():
        return target
    failed = compile_into(target, command)
    if failed is None:
        return target
    return AHEAD if AHEAD.is_file() else failed


def _declared(library: Any) -> Any:
    """The library with its signatures named (see kernel.c)."""
    pointer, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "esq_best_level": (ctypes.c_int, []),
        "esq_has_level": (ctypes.c_bool, [ctypes.c_int]),
        "esq_multiply": (ctypes.c_bool, [ctypes.c_int] * 3 + [pointer, pointer, i64, i64, pointer, i64, pointer]),
        "esq_attend": (ctypes.c_bool, [ctypes.c_int, *[pointer] * 5, ctypes.c_float, pointer]),
        "esq_attention_address": (pointer, []),
        "esq_set_ops": (None, [pointer] * 5),
        "esq_n_taken": (i64, [pointer]),
        "esq_n_left": (i64, [pointer]),
        "esq_mul_mat_address": (pointer, []),
        "esq_get_rows_address": (pointer, []),
        "esq_new": (pointer, [i64, ctypes.c_int, i32]),
        "esq_set_weight": (None, [pointer, i64, ctypes.c_char_p, i64, i64, pointer, ctypes.c_char_p]),
        "esq_set_template": (None, [pointer, pointer, pointer]),
        "esq_n_refused": (i64, [pointer]),
        "esq_n_failed": (i64, [pointer]),
        "esq_n_unseen": (i64, [pointer]),
        "esq_free": (None, [pointer]),
        "esq_plain_address": (pointer, []),
        "esq_plain_new": (pointer, [ctypes.c_int, i32]),
        "esq_plain_set_template": (None, [pointer, pointer]),
        "esq_plain_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
