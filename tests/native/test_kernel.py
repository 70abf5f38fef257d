"""The kernel's products: every format, layout and instruction set gives numpy's sums; no width changes a bit."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_rig import in_layout, seen

from edge_specquant.native.kernel import (
    FORMATS,
    kernel,
    multiply,
    random_f16,
    random_nested,
    random_q8_0,
)

KERNEL = kernel()
pytestmark = pytest.mark.skipif(isinstance(KERNEL, str), reason=str(KERNEL))
MAKERS = dict(zip(FORMATS, (random_nested, random_q8_0, random_f16), strict=True))
LAYOUTS = [("nested", layout) for layout in range(4)] + [("q8_0", 0), ("f16", 0)]


def _level(level: int) -> tuple[object, int]:
    assert not isinstance(KERNEL, str)
    if level > KERNEL.library.esq_best_level():
        pytest.skip("not on this processor")
    return KERNEL.library, level


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_every_instruction_set_reads_every_format(level: int, kind: str, layout: int) -> None:
    library, level = _level(level)
    rng = np.random.default_rng(layout)
    weights = in_layout(MAKERS[kind](rng, 24, 160), layout)
    x = rng.normal(0, 1, (43, 160)).astype(np.float32)
    expected = seen(kind, x) @ weights.values.T
    assert np.abs(multiply(library, level, weights, x) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_is_the_same_bits_at_every_width(level: int, kind: str) -> None:
    library, level = _level(level)
    rng = np.random.default_rng(3)
    weights = MAKERS[kind](rng, 16, 224)
    x = rng.normal(0, 1, (40, 224)).astype(np.float32)
    alone = np.concatenate([multiply(library, level, weights, x[i : i + 1]) for i in range(40)])
    for n in range(2, 41):
        assert np.array_equal(multiply(library, level, weights, x[:n]), alone[:n])
