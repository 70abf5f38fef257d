"""Measured quality: the numbers obey their laws, and fewer bits are never better than more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.gguf.convert.convert import ConvertOptions, convert, open_source, plan_conversion
from edge_specquant.gguf.convert.quality import kl_divergence, measure
from edge_specquant.gguf.quantize.collect import shipped_text


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 30))
def test_kl_divergence_is_zero_for_equals_and_never_negative(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    p, q = (_log_softmax(rng.normal(0, spread, (3, 50)).astype(np.float32)) for _ in range(2))
    assert np.allclose(kl_divergence(p, p), 0)
    assert (kl_divergence(p, q) >= 0).all()


def test_a_model_against_itself_and_coarser_siblings(tiny: Path, home: Path) -> None:
    del home
    family = convert(
        plan_conversion(open_source(str(tiny)), "tiny", ["f16", "q8", "q4", "q2"]), ConvertOptions(measure=True)
    )
    quality = {name: variant.quality for name, variant in family.variants.items()}
    assert quality["f16"] is not None
    assert quality["f16"].mean_kld is None
    klds = []
    for name in ("q8", "q4", "q2"):
        record = quality[name]
        assert record is not None
        assert record.mean_kld is not None
        assert record.top1_agreement is not None
        assert record.reference == "f16"
        assert record.n_tokens == quality["f16"].n_tokens
        klds.append(record.mean_kld)
    assert klds == sorted(klds)
    assert klds[0] < 0.05

    path = family.path("f16")
    itself = measure({"a": path, "b": path}, "a", shipped_text("heldout"), n_tokens=300)
    assert itself["b"].mean_kld == pytest.approx(0, abs=1e-6)
    assert itself["b"].top1_agreement == 1.0
    assert itself["b"].perplexity == pytest.approx(itself["a"].perplexity)


def _log_softmax(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    shifted = x - x.max(axis=1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))).astype(np.float32)
