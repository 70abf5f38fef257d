"""The compiled kernel of matrix products: built once where a C compiler is, proven against numpy, else not there.

Takes nothing, gives a loaded library or the reason why there is none. Knows nothing of models.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import config
from ..selftest import engine_key
from .proof import is_right

LEVELS = ("plain C", "AVX2", "AVX-512 VNNI", "SDOT", "AVX-VNNI", "AVX-VNNI as AVX-512 encodes it")
_PREFIX = "products-"
_FLAGS = ("-O3", "-shared", "-fPIC", "-std=gnu11", "-fvisibility=hidden")
_MATH_FLAGS = ("-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math", "-ffp-contract=off")
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """The loaded library, the instruction set it will use, and a hash of its source and compiler."""

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
    level = library.esq_best_level()
    if level == 0:  # plain C is a reference, far behind the engine's own products
        return "the kernel has no code for this processor's instruction sets; the engine's own products are taken"
    if not is_right(library, level):
        return f"the kernel ({LEVELS[level]}) computes wrongly when compiled on this machine"
    return Kernel(library, level, built.stem.removeprefix(_PREFIX)[:8])


def _build() -> Path | str:
    """The compiled library, from the cache when source, compiler and processor are those it was built for."""
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler here (gcc or clang), so the engine's own products are taken"
    source = Path(__file__).with_name("kernel.c")
    try:
        text = b"".join(path.read_bytes() for path in sorted(source.parent.glob("*.[ch]")))
    except OSError as error:
        return f"the kernel's source is missing: {error}"
    key = hashlib.sha256(b"\0".join((text, " ".join(compiler).encode(), engine_key().encode()))).hexdigest()[:24]
    target = config.cache_dir() / "kernels" / f"{_PREFIX}{key}.so"
    return target if target.is_file() else _compile(compiler, source, target)


def _compile(compiler: list[str], source: Path, target: Path) -> Path | str:
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    reason = "no attempt"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for native in ("-march=native", "-mcpu=native", ""):  # clang on ARM knows only the second
            flags = (*_FLAGS, *_MATH_FLAGS, *filter(None, (native,)))
            command = [*compiler, *flags, str(source), "-o", str(partial), "-lm"]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
            )
            if done.returncode == 0:
                partial.replace(target)
                return target
            reason = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
        return f"the kernel could not be compiled: {reason}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the kernel could not be compiled: {error}"
    finally:
        partial.unlink(missing_ok=True)


def _compiler() -> list[str] | None:
    named = os.environ.get("CC")
    if named:
        return shlex.split(named)
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return None if found is None else [found]


def _declared(library: Any) -> Any:
    """The library with its signatures named (see kernel.c)."""
    pointer, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "esq_best_level": (ctypes.c_int, []),
        "esq_has_level": (ctypes.c_bool, [ctypes.c_int]),
        "esq_multiply": (ctypes.c_bool, [ctypes.c_int] * 3 + [pointer, pointer, i64, i64, pointer, i64, pointer]),
        "esq_attend": (ctypes.c_bool, [ctypes.c_int, *[pointer] * 5, ctypes.c_float, pointer]),
        "esq_attention_address": (pointer, []),
        "esq_set_ops": (None, [pointer, pointer, pointer]),
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
        "esq_plain_new": (pointer, [ctypes.c_int, i32, pointer, pointer]),
        "esq_plain_set_template": (None, [pointer, pointer]),
        "esq_plain_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
