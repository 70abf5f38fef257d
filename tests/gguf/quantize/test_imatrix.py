"""Importance matrices: collected from the engine, written in upstream's format, never trusted blindly."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from edge_specquant.errors import FileError, UsageError
from edge_specquant.gguf.convert.convert import ConvertOptions, convert, open_source, plan_conversion
from edge_specquant.gguf.format.header import read_card
from edge_specquant.gguf.quantize.collect import collect_imatrix, read_text, shipped_text
from edge_specquant.gguf.quantize.imatrix import Imatrix, read_imatrix, usable_importances, write_imatrix
from edge_specquant.gguf.quantize.recipe import may_quantize
from edge_specquant.native.opening import open_model
from edge_specquant.native.selftest.tiny import write_tiny_llama


@pytest.fixture(scope="module")
def collected(tiny: Path) -> Imatrix:
    names = frozenset(tensor.name for tensor in read_card(tiny).tensors if may_quantize(tensor))
    return collect_imatrix(tiny, names, shipped_text("calibration")[:3000], "a text")


def test_every_matrix_is_covered_and_the_numbers_are_mean_squares(tiny: Path, collected: Imatrix) -> None:
    card = read_card(tiny)
    usable, notes = usable_importances(collected, card.tensors)
    assert notes == ()
    assert set(usable) == {tensor.name for tensor in card.tensors if may_quantize(tensor)}
    for tensor in card.tensors:
        if tensor.name in usable:
            assert usable[tensor.name].shape == (tensor.shape[0],)
            assert np.isfinite(usable[tensor.name]).all()
            assert (usable[tensor.name] > 0).all()
    # q, k and v see the same input; it is normalized, so its mean square is that of the norm's weights: one.
    assert np.array_equal(usable["blk.0.attn_q.weight"], usable["blk.0.attn_v.weight"])
    assert usable["blk.0.attn_q.weight"].mean() == pytest.approx(1.0, rel=0.01)


def test_sums_are_those_of_the_activations(tiny: Path) -> None:
    """The first norm's output can be computed by hand from the embedding rows."""
    text = shipped_text("calibration")[:2000]
    collected = collect_imatrix(tiny, frozenset({"blk.0.attn_q.weight"}), text, "a text")
    with open_model(tiny, vocab_only=True) as model:
        tokens = model.vocab.tokenize(text)
        bos = model.vocab.bos
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tiny).tensors}
    embedding = tensors["token_embd.weight"].data.astype(np.float64)
    expected = np.zeros(embedding.shape[1])
    for chunk in range(len(tokens) // 256):
        rows = embedding[[bos, *tokens[chunk * 256 + 1 : (chunk + 1) * 256]]]
        expected += (rows**2 / ((rows**2).mean(axis=1, keepdims=True) + 1e-5)).sum(axis=0)
    np.testing.assert_allclose(collected.sums["blk.0.attn_q.weight"], expected, rtol=1e-3)


def test_written_files_are_read_back_and_by_gguf_py(tmp_path: Path, collected: Imatrix) -> None:
    path = tmp_path / "m.gguf"
    write_imatrix(path, collected)
    back = read_imatrix(path)
    assert back.datasets == ("a text",)
    assert (back.n_chunks, back.n_chunk_tokens) == (collected.n_chunks, 256)
    for name, sums in collected.sums.items():
        assert np.array_equal(back.sums[name], sums)
        assert back.counts[name] == collected.counts[name]
    reader = gguf.GGUFReader(path)
    assert reader.fields["general.type"].contents() == "imatrix"
    assert {tensor.name for tensor in reader.tensors} == {
        f"{name}{suffix}" for name in collected.sums for suffix in (".in_sum2", ".counts")
    }


def test_a_file_as_upstream_writes_it(tmp_path: Path) -> None:
    """llama-imatrix: general.type, imatrix.*, two F32 tensors a weight, 2-D."""
    path = tmp_path / "upstream.gguf"
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["wiki.train.raw"])
    writer.add_uint32("imatrix.chunk_count", 7)
    writer.add_uint32("imatrix.chunk_size", 512)
    writer.add_tensor("blk.0.attn_q.weight.in_sum2", np.arange(8, dtype=np.float32).reshape(1, 8))
    writer.add_tensor("blk.0.attn_q.weight.counts", np.array([[4.0]], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    matrix = read_imatrix(path)
    assert matrix.n_tokens == 4
    assert matrix.datasets == ("wiki.train.raw",)
    assert np.array_equal(matrix.sums["blk.0.attn_q.weight"], np.arange(8))


def altered(matrix: Imatrix, name: str, values: np.ndarray) -> Imatrix:  # type: ignore[type-arg]
    return Imatrix({**matrix.sums, name: values}, matrix.counts, matrix.datasets, matrix.n_chunks, 256)


def test_zeros_and_numbers_that_are_none_become_small_and_finite(tiny: Path, collected: Imatrix) -> None:
    tensors = read_card(tiny).tensors
    values = collected.sums["blk.0.attn_q.weight"].copy()
    values[:5] = [0.0, np.nan, np.inf, -1.0, 0.0]
    usable, notes = usable_importances(altered(collected, "blk.0.attn_q.weight", values), tensors)
    assert notes == ("the importance matrix has no number for 3 columns of blk.0.attn_q.weight: they weigh least",)
    importance = usable["blk.0.attn_q.weight"]
    assert np.isfinite(importance).all()
    assert (importance > 0).all()
    assert importance[:5].max() < importance[5:].min()
    all_zero = altered(collected, "blk.0.attn_q.weight", np.zeros_like(values))
    usable, notes = usable_importances(all_zero, tensors)
    assert "blk.0.attn_q.weight" not in usable
    assert notes == ("the importance matrix says nothing of blk.0.attn_q.weight: quantized without it",)


def test_another_models_matrix_is_refused(tiny: Path, tiny_narrow: Path, collected: Imatrix) -> None:
    del tiny
    with pytest.raises(UsageError, match=r"of another model: '.*' has 256 columns there and 288 here"):
        usable_importances(collected, read_card(tiny_narrow).tensors)
    foreign = Imatrix({"enc.0.w": np.ones(4, np.float32)}, {"enc.0.w": 1.0}, (), 1, 256)
    with pytest.raises(UsageError, match="of its 1 tensors only 0 are here"):
        usable_importances(foreign, read_card(tiny_narrow).tensors)
    with pytest.raises(UsageError, match="is empty"):
        usable_importances(Imatrix({}, {}, (), 0, 0), read_card(tiny_narrow).tensors)


def test_files_that_are_no_matrix(tmp_path: Path, tiny: Path) -> None:
    old = tmp_path / "old.dat"
    old.write_bytes(b"\x10\0\0\0" + b"\0" * 100)
    with pytest.raises(FileError, match=r"old \.dat format"):
        read_imatrix(old)
    with pytest.raises(FileError, match="no importance matrix"):
        read_imatrix(tiny)
    with pytest.raises(FileError, match="no file"):
        read_imatrix(tmp_path / "absent.gguf")


def test_texts_that_are_empty_or_too_short(tmp_path: Path, tiny: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    with pytest.raises(UsageError, match="is empty"):
        read_text(empty)
    with pytest.raises(FileError, match="cannot be read"):
        read_text(tmp_path / "absent.txt")
    with pytest.raises(UsageError, match=r"has \d+ tokens; at least 256"):
        collect_imatrix(tiny, frozenset(), "Only a few words.", "short")


def test_an_interrupt_inside_the_callback_comes_out(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "einsum", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect_imatrix(tiny, frozenset({"blk.0.attn_q.weight"}), shipped_text("calibration")[:2000], "a text")


@pytest.mark.usefixtures("home")
def test_a_family_with_a_matrix_differs_and_says_so(tmp_path: Path) -> None:
    source = write_tiny_llama(tmp_path / "m.gguf", n_embd=256)
    plan = plan_conversion(open_source(str(source)), "m", ["f16", "q4"])
    plain = convert(plan)
    before = plain.variants["q4"].sha256
    weighed = convert(plan, ConvertOptions(imatrix="auto"))
    assert weighed.manifest is not None
    assert weighed.manifest.imatrix is not None
    assert weighed.manifest.imatrix.origin == "shipped calibration text"
    assert weighed.manifest.imatrix.n_tokens > 1000
    assert weighed.manifest.variants["q4"].imatrix_sha256 == weighed.manifest.imatrix.sha256
    assert weighed.variants["q4"].sha256 != before
    again = convert(plan, ConvertOptions(imatrix="auto"))
    assert again.variants["q4"].sha256 == weighed.variants["q4"].sha256
    findings = [(finding.subject, finding.ok) for finding in again.verify()]
    assert findings == [("f16", True), ("q4", True), ("imatrix", True)]
    brought = plan_conversion(open_source(str(source)), "brought", ["q4"])
    mine = convert(brought, ConvertOptions(imatrix=weighed.folder / "m.imatrix.gguf"))
    assert mine.variants["q4"].sha256 == weighed.variants["q4"].sha256
