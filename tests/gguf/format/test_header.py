"""The header reader believes nothing: whole files give the right card, all others an error that names numbers (C10)."""

from __future__ import annotations

import shutil
import struct
import warnings
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.errors import GGUFError, VocabularyError
from edge_specquant.gguf.format.container import read_container
from edge_specquant.gguf.format.header import read_card, require_same_vocabulary, vocabulary_tokens
from edge_specquant.gguf.format.weight_types import BY_NAME
from edge_specquant.native.selftest.tiny import write_tiny_llama


def test_the_card_agrees_with_gguf_py(tiny: Path) -> None:
    card = read_card(tiny)
    reader = gguf.GGUFReader(tiny)
    assert card.architecture == "llama"
    assert (card.n_embd, card.n_layer, card.n_head) == (256, 2, 8)
    assert card.head_size_k == card.head_size_v == 32
    assert card.has_tied_embeddings
    assert {t.name: (list(t.shape), t.tensor_type.name, t.n_bytes) for t in reader.tensors} == {
        t.name: (list(t.shape), t.weight_type.name, t.n_bytes) for t in card.tensors
    }
    assert card.n_vocab == len(reader.fields["tokenizer.ggml.tokens"].data)
    assert vocabulary_tokens(card) == reader.fields["tokenizer.ggml.tokens"].contents()
    assert card.n_parameters == sum(int(t.n_elements) for t in reader.tensors)


def test_our_table_of_weight_types_is_ggufs() -> None:
    for weight_type, (n_per_block, n_block_bytes) in gguf.GGML_QUANT_SIZES.items():
        ours = BY_NAME.get(weight_type.name)
        if ours is not None and weight_type.name != "Q8_1":  # gguf-py has the block of before its scales became F16
            assert (ours.ggml_id, ours.n_per_block, ours.n_block_bytes) == (weight_type, n_per_block, n_block_bytes)


@pytest.mark.parametrize("n_kept", [0, 3, 4, 23, 100])
def test_a_file_cut_in_its_header_says_how_long_it_is_and_should_be(tiny: Path, tmp_path: Path, n_kept: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:n_kept])
    with pytest.raises(GGUFError, match=rf"is {n_kept} bytes, needs"):
        read_card(cut)


def test_a_file_cut_at_the_end_of_its_header_or_before_its_last_byte(tiny: Path, tmp_path: Path) -> None:
    container = read_container(tiny)
    whole = tiny.read_bytes()
    for n_kept in (container.data_offset, container.n_bytes_needed - 1):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(whole[:n_kept])
        with pytest.raises(GGUFError, match=rf"is {n_kept} bytes, needs {container.n_bytes_needed}"):
            read_card(cut)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "web page"),
        (b"  \n<html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS"),
        (b"PK\x03\x04" + b"\0" * 40, "PyTorch"),
        (b"\x93NUMPY" + b"\0" * 40, "starts with"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "needs"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "needs"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + b"\0" * 64, "name of"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 1 << 61) + b"\0" * 9, "needs"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 61) + b"\0" * 9, "needs"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1) + b"\0" * 9, "unknown value"),
    ],
)
def test_foreign_and_hostile_files_are_errors_not_memory(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=said):
        read_card(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="no file"):
        read_card(tmp_path / "absent.gguf")
    with pytest.raises(GGUFError, match="folder"):
        read_card(tmp_path)


def _minimal_file(path: Path, offsets: tuple[int, int]) -> Path:
    """Two F32 tensors of 32 weights at the given offsets."""
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 0)
    for name, offset in zip((b"a", b"b"), offsets, strict=True):
        header += struct.pack("<Q", 1) + name + struct.pack("<IQIQ", 1, 32, 0, offset)
    path.write_bytes(header + b"\0" * (-len(header) % 32) + b"\0" * 512)
    return path


@pytest.mark.parametrize(("offsets", "said"), [((0, 64), "overlap"), ((0, 130), "odd offset"), ((0, 1 << 40), "needs")])
def test_tensors_that_overlap_or_point_outside(tmp_path: Path, offsets: tuple[int, int], said: str) -> None:
    with pytest.raises(GGUFError, match=said):
        read_container(_minimal_file(tmp_path / "x.gguf", offsets))
    assert len(read_container(_minimal_file(tmp_path / "y.gguf", (0, 128))).tensors) == 2


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_header_is_read_or_refused_but_never_crashes(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(tiny.read_bytes())
    position = data.draw(st.integers(4, read_container(tiny).data_offset - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    path.write_bytes(whole)
    try:
        read_card(path)
    except GGUFError as error:
        assert str(path) in str(error)


def _split(source: Path, folder: Path) -> list[Path]:
    """The same model as two shards, by gguf's own writer."""
    reader = gguf.GGUFReader(source)
    stem = folder / "model.gguf"
    writer = gguf.GGUFWriter(stem, "llama", split_max_tensors=len(reader.tensors) - 3)
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_shape=tensor.data.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return sorted(folder.glob("*.gguf"))


def test_any_shard_resolves_to_the_first_and_a_missing_one_is_named(tiny: Path, tmp_path: Path) -> None:
    shards = _split(tiny, tmp_path)
    assert len(shards) == 2
    whole = read_card(tiny)
    for shard in shards:
        card = read_card(shard)
        assert card.path == shards[0]
        assert card.n_parameters == whole.n_parameters
        assert card.vocabulary_sha256 == whole.vocabulary_sha256
    renamed = tmp_path / "other.gguf"
    shutil.copy(shards[1], renamed)
    with pytest.raises(GGUFError, match="names back"):
        read_card(renamed)
    shards[0].unlink()
    with pytest.raises(GGUFError, match=f"missing beside it: {shards[0].name}"):
        read_card(shards[1])


def test_vocabularies_that_differ_name_the_first_difference(tiny: Path, tmp_path: Path) -> None:
    card = read_card(tiny)
    padded = read_card(write_tiny_llama(tmp_path / "p.gguf", tied=True, n_padding_tokens=3))
    with pytest.raises(VocabularyError, match=f"{card.n_vocab} tokens against {padded.n_vocab}"):
        require_same_vocabulary(card, padded)
    content = tiny.read_bytes()
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(content.replace(b"<0x41>", b"<0xZZ>", 1))
    with pytest.raises(VocabularyError, match="token 68 is '<0x41>' in one and '<0xZZ>' in the other"):
        require_same_vocabulary(card, read_card(changed))
    no_template = read_card(write_tiny_llama(tmp_path / "n.gguf", tied=True, seed=5, chat_template=None))
    require_same_vocabulary(card, no_template)
