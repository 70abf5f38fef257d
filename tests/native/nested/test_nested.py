"""Nested targets: logits are those of base + residual, by kernel and without; speculation changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
from engine_rig import Rig

from edge_specquant.errors import UsageError
from edge_specquant.gguf.nested.nested import read_planes, write_nested
from edge_specquant.gguf.nested.nested_codec import decode
from edge_specquant.gguf.nested.nested_open import open_nested
from edge_specquant.native.kernel import kernel
from edge_specquant.native.kernel.nested_planes import ungrouped
from edge_specquant.native.model import NativeModel
from edge_specquant.native.nested.nested import NestedModel, SharedModel
from edge_specquant.native.opening import open_model
from edge_specquant.native.protocol import ContextParams
from edge_specquant.native.selftest.selftest import verdict
from edge_specquant.native.selftest.tiny import write_tiny_llama

PARAMS = ContextParams(n_ctx=256, n_batch=128, max_rows=64, n_threads=2)
KERNEL = kernel()
needs_kernel = pytest.mark.skipif(isinstance(KERNEL, str), reason=str(KERNEL))
WAYS = [pytest.param(True, marks=needs_kernel, id="kernel"), pytest.param(False, id="plain")]


@dataclass(frozen=True)
class Files:
    base: Path
    residual: Path
    reference: Path


@pytest.fixture(scope="module", params=[(256, False), (96, True)], ids=["untied-256", "tied-96"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A nested pair, and an F32 model with exactly the weights that the pair stands for."""
    n_embd, tied = request.param
    folder = tmp_path_factory.mktemp("nested")
    source = write_tiny_llama(folder / "tiny.gguf", n_embd=n_embd, tied=tied, dtype="F32")
    base, residual = folder / "base.gguf", folder / "nested.gguf"
    write_nested(source, base, residual)
    return Files(base, residual, _with_weights(source, folder / "reference.gguf", _decoded(base, residual)))


def _decoded(base: Path, residual: Path) -> dict[str, np.ndarray]:
    _, planes = read_planes(residual)
    below, fine = (np.memmap(path, dtype=np.uint8, mode="r") for path in (base, residual))
    found = {}
    for plane in planes:
        blocks = below[plane.base_offset :][: plane.n_base_bytes].reshape(plane.n_rows, plane.n_blocks, 18)
        nibbles = ungrouped(fine[plane.residual_offset :][: plane.n_residual_bytes], plane.n_rows, plane.n_blocks)
        found[plane.name] = decode(blocks, nibbles)
    return found


def _with_weights(source: Path, target: Path, weights: dict[str, np.ndarray]) -> Path:
    """A copy of an F32 file with other values in it."""
    target.write_bytes(source.read_bytes())
    for tensor in gguf.GGUFReader(target, "r+").tensors:
        if tensor.name in weights:
            tensor.data[:] = weights[tensor.name].reshape(tensor.data.shape)
    return target


@pytest.fixture(params=WAYS)
def nested(request: pytest.FixtureRequest, files: Files) -> Iterator[NestedModel]:
    with open_nested(files.residual, use_kernel=request.param) as model:
        yield model


def test_logits_are_those_of_base_plus_residual(nested: NestedModel, files: Files) -> None:
    tokens = nested.vocab.tokenize("the cat and the hat in the end of the street, 42 times")
    with NativeModel(files.reference, use_extra_bufts=True) as exact, exact.context(PARAMS) as context:
        expected = context.decode(tokens, 0, len(tokens)).copy()
    with nested.context(PARAMS) as context:
        found = context.decode(tokens, 0, len(tokens)).copy()
    with nested.base.context(PARAMS) as context:
        by_base = context.decode(tokens, 0, len(tokens)).copy()
    spread = expected.std()
    assert np.sqrt(np.square(found - expected).mean()) < 0.06 * spread  # activations are rounded to 8 bits
    assert np.sqrt(np.square(by_base - expected).mean()) > 2 * np.sqrt(np.square(found - expected).mean())


def test_prefill_without_logits_and_later_widths_agree(nested: NestedModel) -> None:
    tokens = nested.vocab.tokenize("of the street and the cat in an end") * 3
    with nested.context(PARAMS) as context:
        whole = context.decode(tokens, 0, len(tokens))[-1].copy()
        context.truncate(0)
        context.decode(tokens[:-6], 0, 0)
        context.decode(tokens[-6:-2], len(tokens) - 6, 0)
        context.decode(tokens[-2:-1], len(tokens) - 2, 1)
        alone = context.decode(tokens[-1:], len(tokens) - 1, 1)[-1].copy()
    assert np.abs(whole - alone).max() < 0.1 * whole.std()


def test_the_base_is_not_touched_by_contexts_of_the_target(nested: NestedModel, files: Files) -> None:
    tokens = nested.vocab.tokenize("the end of the street")
    with NativeModel(files.base, use_extra_bufts=verdict().use_extra_bufts) as alone, alone.context(PARAMS) as context:
        expected = context.decode(tokens, 0, 1).copy()
    with nested.context(PARAMS) as target, nested.base.context(PARAMS) as draft:
        target.decode(tokens, 0, 1)
        assert np.array_equal(draft.decode(tokens, 0, 1), expected)


def test_greedy_speculation_equals_the_target_alone(nested: NestedModel) -> None:
    prompt = nested.vocab.tokenize("the cat and the")
    alone = Rig(nested)
    plain = alone.reply(prompt, max_tokens=40)
    pair = Rig(nested, nested.base)
    drafted = pair.reply(prompt, max_tokens=40, n_draft=3)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.n_accepted > 0
    for rig in (alone, pair):
        rig.close()


def test_cells_of_the_target_serve_the_draft(nested: NestedModel) -> None:
    tokens = nested.vocab.tokenize("the cat and the hat")
    with nested.context(PARAMS) as target, nested.base.context(PARAMS) as draft:
        target.decode(tokens, 0, 1)
        assert draft.copy_state_from(target) and draft.used() == len(tokens)
        assert np.isfinite(draft.decode(tokens[:1], len(tokens), 1)).all()


def test_free_residuals_work_without_the_kernel(files: Files, tmp_path: Path) -> None:
    for kind in ("q4_0", "q8_0"):
        base, residual = tmp_path / f"{kind}-base.gguf", tmp_path / f"{kind}-nested.gguf"
        write_nested(files.reference, base, residual, kind=kind)
        tokens = [5, 300, 301, 302]
        with NativeModel(files.reference, use_extra_bufts=True) as exact, exact.context(PARAMS) as context:
            expected = context.decode(tokens, 0, 4).copy()
        with open_nested(residual) as model, model.context(PARAMS) as context:
            found = context.decode(tokens, 0, 4)
            assert np.sqrt(np.square(found - expected).mean()) < 0.06 * expected.std()


def test_a_shared_base_lives_until_its_last_owner_closes(files: Files) -> None:
    first = SharedModel(open_model(files.base))
    second = first.share()
    with open_nested(files.residual, second) as target:
        first.close()
        assert second.is_loaded
        with target.context(PARAMS) as context:
            context.decode([5, 6], 0, 1)
    assert not first.is_loaded
    first.close()


def test_a_wanted_kernel_that_cannot_be_is_a_usage_error(files: Files, tmp_path: Path) -> None:
    base, residual = tmp_path / "b.gguf", tmp_path / "n.gguf"
    write_nested(files.reference, base, residual, kind="q4_0")
    with pytest.raises(UsageError, match="tied"):
        open_nested(residual, use_kernel=True)
