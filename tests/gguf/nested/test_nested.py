"""Nested files: the base is an ordinary model, both planes decode to what was encoded, strangers are refused."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.errors import GGUFError, UsageError
from edge_specquant.gguf.format.container import read_container
from edge_specquant.gguf.format.header import read_card
from edge_specquant.gguf.nested.nested import NestedFiles, is_residual, read_planes, write_nested
from edge_specquant.gguf.nested.nested_codec import decode, decode_base, encode
from edge_specquant.native.kernel.nested_planes import grouped, residual_as_q4_0, ungrouped
from edge_specquant.native.model import NativeModel
from edge_specquant.native.selftest.tiny import write_tiny_llama

Q4_0, Q8_0 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0


def heavy_tailed(seed: int, n_rows: int, n_cols: int, scale: float = 0.02) -> np.ndarray:
    return (np.random.default_rng(seed).standard_t(5, (n_rows, n_cols)) * scale).astype(np.float32)


def squared_error(approximation: np.ndarray, weights: np.ndarray) -> float:
    return float(np.square(approximation - weights, dtype=np.float64).sum())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30), n_rows=st.integers(1, 19), n_blocks=st.integers(1, 4), power=st.integers(-20, 8))
def test_the_base_is_q4_0_and_both_planes_are_within_half_a_step(
    seed: int, n_rows: int, n_blocks: int, power: int
) -> None:
    weights = heavy_tailed(seed, n_rows, 32 * n_blocks, 2.0**power)
    base, nibbles = encode(weights)
    read = gguf.quants.dequantize(base.reshape(n_rows, -1), Q4_0)
    assert np.array_equal(read, decode_base(base))
    largest = np.abs(weights.reshape(-1, 32)).max(axis=1, keepdims=True)
    errors = np.abs(decode(base, nibbles) - weights).reshape(-1, 32)
    # No scale is wider than 1.0756 of the usual one; the worst clipping leaves 0.2 of it, F16 below its range a little.
    assert (np.median(errors, axis=1) <= (0.5 * 1.08 / 128 + 1e-3) * largest[:, 0] + 6e-8).all()
    assert (errors <= 0.11 * largest + 1e-6).all()


def test_zeros_stay_zeros() -> None:
    base, nibbles = encode(np.zeros((2, 64), dtype=np.float32))
    assert not decode(base, nibbles).any() and not decode_base(base).any()


def test_the_target_is_as_good_as_q8_0_and_the_base_no_worse_than_q4_0() -> None:
    weights = heavy_tailed(1, 256, 256)
    base, nibbles = encode(weights)
    by_q4 = gguf.quants.dequantize(gguf.quants.quantize(weights, Q4_0), Q4_0)
    by_q8 = gguf.quants.dequantize(gguf.quants.quantize(weights, Q8_0), Q8_0)
    assert squared_error(decode_base(base), weights) < squared_error(by_q4, weights)
    assert squared_error(decode(base, nibbles), weights) < 1.1 * squared_error(by_q8, weights)


def test_important_columns_are_kept_better() -> None:
    weights = heavy_tailed(2, 512, 64)
    importance = np.where(np.arange(64) % 4 == 0, 50.0, 0.02).astype(np.float32)
    plain, weighed = encode(weights), encode(weights, importance)
    error = [float((np.square(decode_base(base) - weights) * importance).sum()) for base, _ in (plain, weighed)]
    assert error[1] < error[0]


@given(st.integers(1, 20), st.integers(1, 3))
def test_grouping_loses_nothing(n_rows: int, n_blocks: int) -> None:
    nibbles = np.random.default_rng(n_rows).integers(0, 256, (n_rows, n_blocks, 16)).astype(np.uint8)
    assert np.array_equal(ungrouped(grouped(nibbles).ravel(), n_rows, n_blocks), nibbles)


def test_a_tied_residual_is_also_a_q4_0_tensor() -> None:
    weights = heavy_tailed(3, 16, 64)
    base, nibbles = encode(weights)
    residual = gguf.quants.dequantize(residual_as_q4_0(base, nibbles).reshape(16, -1), Q4_0)
    assert np.allclose(decode_base(base) + residual, decode(base, nibbles), atol=1e-7)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> NestedFiles:
    folder = tmp_path_factory.mktemp("a néw pair")
    source = write_tiny_llama(folder / "tiny.gguf", n_embd=96)
    return write_nested(source, folder / "t-base.gguf", folder / "t-nested.gguf", n_threads=2)


def test_the_base_loads_as_an_ordinary_model(pair: NestedFiles) -> None:
    with NativeModel(pair.base, use_extra_bufts=True) as model:
        assert model.vocab.tokenize("hello")
    card = read_card(pair.base)
    assert card.weight_type_counts["Q4_0"] == pair.n_nested and card.file_type == "Q4_0"
    source = read_card(pair.base.with_name("tiny.gguf"))
    assert card.vocabulary_sha256 == source.vocabulary_sha256 == read_card(pair.residual).vocabulary_sha256
    assert card.chat_template == source.chat_template


def test_head_and_embedding_are_nested_too_and_the_bits_are_those_of_the_files(pair: NestedFiles) -> None:
    _, planes = read_planes(pair.residual)
    names = {plane.name for plane in planes}
    assert {"token_embd.weight", "output.weight", "blk.1.ffn_down.weight"} <= names
    n_weights = read_card(pair.base).n_parameters
    n_bytes = read_card(pair.base).n_tensor_bytes + sum(plane.n_residual_bytes for plane in planes)
    assert pair.bits_per_weight == pytest.approx(8 * n_bytes / n_weights)
    assert is_residual(read_container(pair.residual)) and not is_residual(read_container(pair.base))


def test_what_is_read_back_is_the_source_within_half_a_step(pair: NestedFiles) -> None:
    source = {t.name: t for t in gguf.GGUFReader(pair.base.with_name("tiny.gguf")).tensors}
    base_path, planes = read_planes(pair.residual)
    base, residual = (np.memmap(path, dtype=np.uint8, mode="r") for path in (base_path, pair.residual))
    for plane in planes:
        blocks = base[plane.base_offset :][: plane.n_base_bytes].reshape(plane.n_rows, plane.n_blocks, 18)
        grouped_plane = residual[plane.residual_offset :][: plane.n_residual_bytes]
        found = decode(blocks, ungrouped(grouped_plane, plane.n_rows, plane.n_blocks))
        wanted = source[plane.name].data.astype(np.float32)
        assert np.abs(found - wanted).max() <= 0.11 * np.abs(wanted).max()
        assert squared_error(found, wanted) < 1e-4 * float(np.square(wanted, dtype=np.float64).sum())


def test_a_residual_refuses_another_base(pair: NestedFiles, tmp_path: Path) -> None:
    stranger = tmp_path / pair.residual.name
    stranger.write_bytes(pair.residual.read_bytes())
    with pytest.raises(GGUFError, match="no file"):
        read_planes(stranger)
    (tmp_path / pair.base.name).write_bytes(pair.base.with_name("tiny.gguf").read_bytes())
    with pytest.raises(GGUFError, match="refines one of"):
        read_planes(stranger)


def test_an_unknown_residual_is_a_usage_error(pair: NestedFiles, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kind of residual"):
        write_nested(pair.base.with_name("tiny.gguf"), tmp_path / "b", tmp_path / "r", kind="q3")
    assert not list(tmp_path.iterdir())
