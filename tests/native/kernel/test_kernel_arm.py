"""The kernel on Arm: compiled by a cross compiler, run under emulation; every format gives the plain C level's sums.

Needs gcc-aarch64-linux-gnu and qemu-user (Debian's names), else nothing is tested here.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from kernel_rig import LAYOUTS, MAKERS, columns, in_layout, seen

from edge_specquant.native import kernel as package
from edge_specquant.native.kernel import LEVELS, compile
from edge_specquant.native.kernel.proof import FORMATS, Weights, random_nested

COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
pytestmark = pytest.mark.skipif(
    COMPILER is None or EMULATOR is None or platform.machine() == "aarch64",
    reason="needs aarch64-linux-gnu-gcc and qemu-aarch64",
)
PLAIN_C, SDOT = LEVELS.index("plain C"), LEVELS.index("SDOT")
PROGRAM = """
#include "kernel.c"
#include <stdio.h>

static void *taken(int64_t n_bytes) {
    void *bytes = n_bytes ? malloc((size_t)n_bytes) : NULL;
    if (n_bytes && fread(bytes, 1, (size_t)n_bytes, stdin) != (size_t)n_bytes) exit(2);
    return bytes;
}

int main(void) {
    int64_t *h = taken(8 * sizeof(int64_t)); /* format, level, layout, columns, rows, n, bytes of base and residual */
    uint8_t *base = taken(h[6]), *residual = taken(h[7]);
    float *x = taken(h[3] * h[5] * 4), *y = malloc((size_t)(h[4] * h[5] * 4));
    if (h[1] > esq_best_level()) return 3;
    if (!esq_multiply(h[0], h[1], h[2], base, residual, h[3], h[4], x, h[5], y)) return 4;
    fwrite(y, 4, (size_t)(h[4] * h[5]), stdout);
    return 0;
}
"""


def compiled(folder: Path, march: str) -> Path:
    source, program = folder / "main.c", folder / march
    source.write_text(PROGRAM, encoding="utf-8")
    here = Path(package.__file__).parent
    flags = ["-O3", "-static", "-std=gnu11", f"-I{here}", *compile._MATH_FLAGS, f"-march={march}"]
    done = subprocess.run(
        [str(COMPILER), *flags, str(source), "-o", str(program), "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def with_sdot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("arm"), "armv8.2-a+dotprod")


def multiply(program: Path, level: int, weights: Weights, x: np.ndarray) -> np.ndarray:
    n_rows, n_cols = weights.values.shape
    data = np.ascontiguousarray(weights.data).tobytes()
    residual = b"" if weights.residual is None else np.ascontiguousarray(weights.residual).tobytes()
    head = [FORMATS.index(weights.kind), level, weights.layout, n_cols, n_rows, len(x), len(data), len(residual)]
    given = np.array(head, dtype=np.int64).tobytes() + data + residual + np.ascontiguousarray(x).tobytes()
    done = subprocess.run([str(EMULATOR), str(program)], input=given, capture_output=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(x), n_rows)


@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_both_levels_give_numpys_sums(with_sdot: Path, kind: str, layout: int) -> None:
    rng, n_cols = np.random.default_rng(layout), columns(kind)
    weights = in_layout(MAKERS[kind](rng, 24, n_cols), layout)
    x = rng.normal(0, 1, (43, n_cols)).astype(np.float32)
    expected = seen(kind, x) @ weights.values.T
    plain, fast = (multiply(with_sdot, level, weights, x) for level in (PLAIN_C, SDOT))
    for found in (plain, fast):
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_is_the_same_bits_at_every_width(with_sdot: Path, kind: str) -> None:
    rng, n_cols = np.random.default_rng(3), columns(kind)
    weights = MAKERS[kind](rng, 16, n_cols)
    x = rng.normal(0, 1, (13, n_cols)).astype(np.float32)
    whole = multiply(with_sdot, SDOT, weights, x)
    for n in (1, 2, 5, 8, 12):
        assert np.array_equal(multiply(with_sdot, SDOT, weights, x[:n]), whole[:n])


def test_a_board_without_sdot_compiles_and_has_plain_c(tmp_path: Path) -> None:
    program = compiled(tmp_path, "armv8-a")
    rng = np.random.default_rng(1)
    weights = random_nested(rng, 8, 64)
    x = rng.normal(0, 1, (2, 64)).astype(np.float32)
    expected = seen("nested", x) @ weights.values.T
    assert np.abs(multiply(program, PLAIN_C, weights, x) - expected).max() <= 1e-5 * np.abs(expected).max()
