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

import numpy as np
from numpy.typing import NDArray

from ... import config
from ..nested_planes import grouped
from ..selftest import engine_key

LEVELS = ("plain C", "AVX2", "AVX-512 VNNI", "SDOT", "AVX-VNNI", "AVX-VNNI as AVX-512 encodes it")
FORMATS = ("nested", "q8_0", "f16", "q4_k", "q4_0")
LAYOUT_ROWS = 0
_PREFIX = "products-"
_FLAGS = ("-O3", "-shared", "-fPIC", "-std=gnu11", "-fvisibility=hidden")
_MATH_FLAGS = ("-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math", "-ffp-contract=off")
_TIMEOUT_S = 120.0
_TOLERANCE = 0.02  # of the largest sum: activations are rounded to 8 bits


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


def is_right(library: Any, level: int) -> bool:
    """Whether the library's products of every format are those of numpy."""
    rng = np.random.default_rng(7)
    x = rng.normal(0, 1, (11, 512)).astype(np.float32)
    narrow = ((make, 16, 96) for make in (random_q8_0, random_f16, random_q4_0))
    for make, n_rows, n_cols in ((random_nested, 13, 96), *narrow, (random_q4_k, 16, 512)):
        weights, columns = make(rng, n_rows, n_cols), x[:, :n_cols]
        found = multiply(library, level, weights, columns)
        expected = columns.astype(np.float64) @ weights.values.T
        if np.abs(found - expected).max() > _TOLERANCE * np.abs(expected).max():
            return False
    return True


@dataclass(frozen=True, slots=True)
class Weights:
    """A matrix in a format of the kernel, and the values it stands for, (n_rows, n_columns)."""

    kind: str
    data: NDArray[np.uint8]
    values: NDArray[np.float64]
    residual: NDArray[np.uint8] | None = None
    layout: int = LAYOUT_ROWS


def multiply(library: Any, level: int, weights: Weights, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """x (n, n_columns) times weights, without an engine: shape (n, n_rows). Raises MemoryError."""
    n_rows, n_cols = weights.values.shape
    y = np.empty((x.shape[0], n_rows), dtype=np.float32)
    data, x = np.ascontiguousarray(weights.data), np.ascontiguousarray(x)
    residual = None if weights.residual is None else np.ascontiguousarray(weights.residual)
    done = library.esq_multiply(
        FORMATS.index(weights.kind),
        level,
        weights.layout,
        data.ctypes.data,
        None if residual is None else residual.ctypes.data,
        n_cols,
        n_rows,
        x.ctypes.data,
        x.shape[0],
        y.ctypes.data,
    )
    if not done:
        raise MemoryError("no memory for the kernel's scratch space")
    return y


def random_nested(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """A base of plain Q4_0 blocks and a residual plane in its own order."""
    n_blocks = n_cols // 32
    scales = _random_scales(rng, n_rows, n_blocks)
    codes = rng.integers(0, 256, (n_rows, n_blocks, 32))
    q, r = codes >> 4, codes & 15
    base = np.empty((n_rows, n_blocks, 18), dtype=np.uint8)
    base[..., :2] = scales.view(np.uint8)
    base[..., 2:] = q[..., :16] | q[..., 16:] << 4
    values = scales.astype(np.float64) / 16 * (codes - 136)
    nibbles = (r[..., :16] | r[..., 16:] << 4).astype(np.uint8)
    return Weights("nested", base, values.reshape(n_rows, n_cols), grouped(nibbles))


def random_q8_0(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of Q8_0 blocks."""
    scales = _random_scales(rng, n_rows, n_cols // 32)
    codes = rng.integers(-128, 128, (n_rows, n_cols // 32, 32), dtype=np.int8)
    data = np.concatenate((scales.view(np.uint8), codes.view(np.uint8)), axis=2)
    return Weights("q8_0", data, (scales.astype(np.float64) * codes).reshape(n_rows, n_cols))


def random_f16(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of half floats."""
    values = rng.normal(0, 1, (n_rows, n_cols)).astype(np.float16)
    return Weights("f16", values.view(np.uint8), values.astype(np.float64))


def random_q4_0(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of Q4_0 blocks: a nested base by itself."""
    n_blocks = n_cols // 32
    scales = _random_scales(rng, n_rows, n_blocks)
    codes = rng.integers(0, 16, (n_rows, n_blocks, 32))
    nibbles = (codes[..., :16] | codes[..., 16:] << 4).astype(np.uint8)
    data = np.concatenate((scales.view(np.uint8), nibbles), axis=2)
    return Weights("q4_0", data, (scales.astype(np.float64) * (codes - 8)).reshape(n_rows, n_cols))


def random_q4_k(rng: np.random.Generator, n_rows: int, n_cols: int) -> Weights:
    """Rows of Q4_K superblocks: d and dmin, 8 scales and 8 minima of 6 bits in 12 bytes, nibbles of 2 x 32 weights."""
    shape = (n_rows, n_cols // 256)
    units = rng.uniform(0.5, 1.5, (*shape, 2)).astype(np.float16)
    scales, minima = rng.integers(0, 64, (2, *shape, 8), dtype=np.uint8)
    codes = rng.integers(0, 16, (*shape, 4, 2, 32), dtype=np.uint8)
    low, high = slice(0, 4), slice(4, 8)
    packed = (
        scales[..., low] | (scales[..., high] & 0x30) << 2,
        minima[..., low] | (minima[..., high] & 0x30) << 2,
        scales[..., high] & 15 | minima[..., high] << 4,
    )
    nibbles = (codes[..., 0, :] | codes[..., 1, :] << 4).reshape(*shape, 128)
    data = np.concatenate((units.view(np.uint8), *packed, nibbles), axis=2)
    exact = units.astype(np.float64)
    by_block = codes.reshape(*shape, 8, 32)
    values = (exact[..., :1] * scales)[..., None] * by_block - (exact[..., 1:] * minima)[..., None]
    return Weights("q4_k", data, values.reshape(n_rows, n_cols))


def _random_scales(rng: np.random.Generator, n_rows: int, n_blocks: int) -> NDArray[np.float16]:
    sizes = rng.uniform(0.5, 1.5, (n_rows, n_blocks, 1)) * rng.choice((-1.0, 1.0), (n_rows, n_blocks, 1))
    scales: NDArray[np.float16] = sizes.astype(np.float16)
    return scales


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
        "esq_mul_mat_address": (pointer, []),
        "esq_get_rows_address": (pointer, []),
        "esq_new": (pointer, [i64, ctypes.c_int, i32, i32]),
        "esq_set_weight": (None, [pointer, i64, ctypes.c_char_p, i64, i64, pointer, ctypes.c_char_p]),
        "esq_set_template": (None, [pointer, i32, pointer, pointer]),
        "esq_n_refused": (i64, [pointer]),
        "esq_n_failed": (i64, [pointer]),
        "esq_n_unseen": (i64, [pointer]),
        "esq_free": (None, [pointer]),
        "esq_plain_address": (pointer, []),
        "esq_plain_new": (pointer, [ctypes.c_int, i32, i32, pointer, pointer]),
        "esq_plain_set_template": (None, [pointer, i32, pointer]),
        "esq_plain_n_taken": (i64, [pointer]),
        "esq_plain_n_failed": (i64, [pointer]),
        "esq_plain_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
