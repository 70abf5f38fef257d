"""The compiled kernel of bit-nested weights: built once where a C compiler is, proven against numpy, else not there.

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

import numpy as np
from numpy.typing import NDArray

from ... import config
from ..nested_planes import grouped
from ..selftest import engine_key

LEVELS = ("plain C", "AVX2", "AVX-512 VNNI", "SDOT")
LAYOUT_ROWS = 0
_FLAGS = ("-O3", "-shared", "-fPIC", "-std=gnu11", "-fvisibility=hidden")
_MATH_FLAGS = ("-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math", "-ffp-contract=off")
_TIMEOUT_S = 120.0
_TOLERANCE = 0.02  # of the largest sum: activations are rounded to 8 bits


@dataclass(frozen=True, slots=True)
class Kernel:
    """The loaded library and the instruction set it will use."""

    library: Any
    level: int

    @property
    def name(self) -> str:
        """The instruction set."""
        return LEVELS[self.level]

    @property
    def suits_the_base_alone(self) -> bool:
        """Whether it beats the engine's own Q4_0 products, measured: with VNNI by up to a half, with AVX2 not."""
        return LEVELS[self.level] == "AVX-512 VNNI"


@functools.cache
def kernel() -> Kernel | str:
    """The kernel, built if need be and proven right here; or a sentence on why there is none."""
    if os.environ.get("EDGE_SPECQUANT_NESTED_KERNEL", "").lower() in ("0", "off", "no"):
        return "the nested kernel is switched off by EDGE_SPECQUANT_NESTED_KERNEL"
    if sys.platform == "win32":
        return "the nested kernel needs gcc or clang; on Windows the slower way without it is taken"
    built = _build()
    if isinstance(built, str):
        return built
    try:
        library = _declared(ctypes.CDLL(str(built)))
    except OSError as error:
        return f"the nested kernel cannot be loaded: {error}"
    level = library.esq_best_level()
    if level == 0:  # plain C is a reference, far behind the engine's own products
        return "the nested kernel has no code for this processor's instruction sets; the slower way without it is taken"
    if not is_right(library, level):
        return f"the nested kernel ({LEVELS[level]}) computes wrongly when compiled on this machine"
    return Kernel(library, level)


def is_right(library: Any, level: int) -> bool:
    """Whether the library's products are those of numpy, for a shape with a partial last group of rows."""
    rng = np.random.default_rng(7)
    n_cols, n_rows, n = 96, 13, 11
    base, residual, weights = random_planes(rng, n_rows, n_cols)
    x = rng.normal(0, 1, (n, n_cols)).astype(np.float32)
    found = multiply(library, level, base, residual, x, n_rows)
    expected = x.astype(np.float64) @ weights.T
    return bool(np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max())


def multiply(
    library: Any,
    level: int,
    base: NDArray[np.uint8],
    residual: NDArray[np.uint8],
    x: NDArray[np.float32],
    n_rows: int,
    layout: int = LAYOUT_ROWS,
) -> NDArray[np.float32]:
    """x (n, n_columns) times nested weights, without an engine: shape (n, n_rows)."""
    y = np.empty((x.shape[0], n_rows), dtype=np.float32)
    arrays = [np.ascontiguousarray(array) for array in (base, residual, x)]
    base_at, residual_at, x_at = (array.ctypes.data for array in arrays)
    done = library.esq_multiply(
        level, layout, base_at, residual_at, x.shape[1], n_rows, x_at, x.shape[0], y.ctypes.data
    )
    if not done:
        raise MemoryError("no memory for the kernel's scratch space")
    return y


def random_planes(
    rng: np.random.Generator, n_rows: int, n_cols: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64]]:
    """A base of plain Q4_0 blocks, a residual plane in its own order, and the weights they stand for."""
    n_blocks = n_cols // 32
    scales = rng.uniform(0.5, 1.5, (n_rows, n_blocks)).astype(np.float16) * rng.choice(
        np.array([-1, 1], dtype=np.float16), (n_rows, n_blocks)
    )
    codes = rng.integers(0, 256, (n_rows, n_blocks, 32))
    q, r = codes >> 4, codes & 15
    base = np.empty((n_rows, n_blocks, 18), dtype=np.uint8)
    base[..., :2] = scales[..., None].view(np.uint8)
    base[..., 2:] = q[..., :16] | q[..., 16:] << 4
    weights = scales[..., None].astype(np.float64) / 16 * (codes - 136)
    nibbles = (r[..., :16] | r[..., 16:] << 4).astype(np.uint8)
    return base, grouped(nibbles), weights.reshape(n_rows, n_cols)


def _build() -> Path | str:
    """The compiled library, from the cache when source, compiler and processor are those it was built for."""
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler here (gcc or clang), so nested weights take the slower way"
    source = Path(__file__).with_name("kernel.c")
    try:
        text = source.read_bytes()
    except OSError as error:
        return f"the kernel's source is missing: {error}"
    key = hashlib.sha256(b"\0".join((text, " ".join(compiler).encode(), engine_key().encode()))).hexdigest()[:24]
    target = config.cache_dir() / "kernels" / f"nested-{key}.so"
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
        return f"the nested kernel could not be compiled: {reason}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the nested kernel could not be compiled: {error}"
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
        "esq_multiply": (
            ctypes.c_bool,
            [ctypes.c_int, ctypes.c_int, pointer, pointer, i64, i64, pointer, i64, pointer],
        ),
        "esq_mul_mat_address": (pointer, []),
        "esq_get_rows_address": (pointer, []),
        "esq_new": (pointer, [i64, ctypes.c_int, i32, i32]),
        "esq_set_weight": (None, [pointer, i64, ctypes.c_char_p, i64, i64, pointer, ctypes.c_char_p]),
        "esq_set_template": (None, [pointer, i32, pointer, pointer]),
        "esq_n_refused": (i64, [pointer]),
        "esq_n_failed": (i64, [pointer]),
        "esq_n_unseen": (i64, [pointer]),
        "esq_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
