"""Ordinary models by the kernel: it takes the products it knows, and the model stays the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_specquant.native.hooks.hooked import HookedContext
from edge_specquant.native.hooks.products import FASTER, ProductsHook
from edge_specquant.native.kernel import kernel
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.native.quantizer import quantize
from edge_specquant.native.selftest.tiny import write_tiny_llama

PARAMS = ContextParams(n_ctx=256, n_batch=128, max_rows=64, n_threads=2)
TOKENS = [(7 * i + 3) % 200 for i in range(40)]


@pytest.fixture(scope="module", params=["F16", "Q8_0", "Q4_0", "Q4_K"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = kernel()
    if isinstance(found, str) or found.name not in FASTER:
        pytest.skip("these products are left to the engine here")
    folder = tmp_path_factory.mktemp("tiny") / request.param
    folder.mkdir()
    source = write_tiny_llama(folder / "f16.gguf", n_embd=256, n_padding_tokens=4)  # 392 rows: whole groups of eight
    if request.param == "F16":
        return source
    quantize(source, folder / "quantized.gguf", ftype=request.param, n_threads=1)
    return folder / "quantized.gguf"


def _logits(path: Path, use_kernel: bool, widths: list[int], params: ContextParams = PARAMS) -> np.ndarray:
    with NativeModel(path, use_extra_bufts=True, use_kernel=use_kernel) as model, model.context(params) as context:
        rows, at = [], 0
        for width in widths:
            rows.append(context.decode(TOKENS[at : at + width], at, width).copy())
            at += width
        return np.concatenate(rows)


def test_the_kernel_takes_products_and_says_so(path: Path) -> None:
    with NativeModel(path, use_extra_bufts=True) as model, model.context(PARAMS) as context:
        assert isinstance(context, HookedContext)
        assert isinstance(context._hook, ProductsHook)
        context.decode(TOKENS[:3], 0)
        assert context._hook.n_taken >= 7  # at least one layer's products


def test_logits_are_the_engines_within_rounding(path: Path) -> None:
    expected = _logits(path, use_kernel=False, widths=[8, 1, 4, 8])
    found = _logits(path, use_kernel=True, widths=[8, 1, 4, 8])
    tolerance = 0.06 if path.parent.name == "Q4_K" else 0.03  # 8-bit activations; the engine's share a scale of 256
    assert np.sqrt(np.square(found - expected).mean()) <= tolerance * expected.std()


def test_however_many_threads_share_the_rows_nothing_is_lost(path: Path) -> None:
    alone = _logits(path, use_kernel=True, widths=[5, 1, 34], params=replace(PARAMS, n_threads=1))
    for n_threads in (3, 18):  # more than there are regions, too
        shared = _logits(path, use_kernel=True, widths=[5, 1, 34], params=replace(PARAMS, n_threads=n_threads))
        assert np.array_equal(shared, alone)


def test_no_width_and_no_length_changes_a_bit(path: Path) -> None:
    """From 512 cells on, and in batches of 64 and more, the engine's own attention does."""
    params = replace(PARAMS, n_ctx=1024, n_batch=512)
    tokens = TOKENS * 18
    last: dict[str, np.ndarray] = {}
    with NativeModel(path, use_extra_bufts=True) as model, model.context(params) as context:
        for name, widths in {"singles": [1], "fives": [5], "a prompt": [512], "mixed": [3, 130, 1, 48]}.items():
            context.clear()
            rows, at, turn = [], 0, 0
            while at < len(tokens):
                chunk = tokens[at : at + widths[turn % len(widths)]]
                rows.append(context.decode(chunk, at, 1)[0].copy())
                at, turn = at + len(chunk), turn + 1
            last[name] = rows[-1]
        assert isinstance(context, HookedContext)
        assert context.is_exact
    assert all(np.array_equal(row, last["singles"]) for row in last.values())


@pytest.mark.parametrize(("kv_type", "is_exact"), [("q8_0", True), ("q4_0", False)])
def test_a_cache_of_other_types_is_attended_by_the_engine(path: Path, kv_type: str, is_exact: bool) -> None:
    params = replace(PARAMS, type_k=kv_type, type_v=kv_type, flash_attention=True)
    with NativeModel(path, use_extra_bufts=True) as model, model.context(params) as context:
        context.decode(TOKENS[:8], 0)
        assert isinstance(context, HookedContext)
        assert context.is_exact == is_exact


def test_without_the_kernel_the_context_is_the_engines_own(path: Path) -> None:
    with NativeModel(path, use_extra_bufts=True, use_kernel=False) as model, model.context(PARAMS) as context:
        assert not isinstance(context, HookedContext)
