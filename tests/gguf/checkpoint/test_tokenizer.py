"""Tokenizers: the engine's ids are those of the library the checkpoint was made for; nothing is guessed (C4, B8)."""

from __future__ import annotations

import contextlib
import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tiny_checkpoints import (
    CHAT_TEMPLATE,
    QWEN2_PATTERN,
    byte_level_tokenizer,
    sentencepiece_as_json,
    sentencepiece_model,
    write_checkpoint,
)
from tokenizers import pre_tokenizers

from edge_specquant.errors import CheckpointError
from edge_specquant.gguf.checkpoint.base import plan_base, write_base
from edge_specquant.gguf.checkpoint.checkpoint import open_checkpoint
from edge_specquant.gguf.checkpoint.pretokenizer import identify_pretokenizer, known_pretokenizers
from edge_specquant.gguf.checkpoint.tokenizer import BYTE, CONTROL, UNUSED, USER_DEFINED, read_vocabulary
from edge_specquant.gguf.format.header import read_card
from edge_specquant.native.model import NativeModel
from edge_specquant.native.opening import open_model

NASTY = unicodedata.normalize(
    "NFC",
    "Zahlen 1234567 und 3.14, don't DON'T we'll\n\n  four   spaces\t\ttabs \r\n crème brûlée naïve Ærøskøbing "
    "你好，世界 こんにちは 안녕 🦙🚀 👩‍👩‍👧‍👦 <|im_start|> <tool_call> \u00a0nbsp … x=1;y==2//3 ''' \"quoted\" 0xFF "
    "50% #tag @me — \ufffd \u200b end ",
)


@contextmanager
def converted(folder: Path, **options: Any) -> Iterator[NativeModel]:
    path = folder.parent / f"{folder.name}.gguf"
    write_base(plan_base(open_checkpoint(folder), "F16", name="tiny", **options), path)
    with open_model(path, vocab_only=True) as model:
        yield model


@pytest.mark.parametrize("kind", ["qwen2", "llama3"])
def test_byte_level_ids_equal_the_tokenizers_library(tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path / "tiny", kind)
    with converted(tmp_path / "tiny") as model:
        expected = byte_level_tokenizer(kind).encode(NASTY, add_special_tokens=False).ids
        assert model.vocab.tokenize(NASTY, parse_special=True) == expected
        assert model.vocab.add_bos == (kind == "llama3")
        assert model.chat_template == CHAT_TEMPLATE


def test_sentencepiece_ids_equal_the_sentencepiece_library(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tiny", "llama")
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    with converted(tmp_path / "tiny") as model:
        assert model.vocab.tokenize(NASTY) == processor.encode(NASTY)
        assert model.vocab.add_bos
        assert model.vocab.tokenize("a<|end|>b", parse_special=True).count(601) == 1


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_saved_as_json_gives_the_same_ids(tmp_path: Path, prefix: bool) -> None:
    folder = tmp_path / "tiny"
    write_checkpoint(folder, "llama")
    (folder / "tokenizer.model").unlink()
    tokenizer = sentencepiece_as_json(prefix=prefix)
    tokenizer.save(str(folder / "tokenizer.json"))
    with converted(folder) as model:
        assert model.vocab.tokenize(NASTY) == tokenizer.encode(NASTY, add_special_tokens=False).ids


def test_the_list_is_padded_to_the_embedding_and_types_are_kept(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "llama")
    vocabulary = read_vocabulary(tmp_path, 640)
    assert len(vocabulary.tokens) == len(vocabulary.types) == 640
    assert vocabulary.tokens[639] == "[PAD639]"
    assert vocabulary.types[639] == UNUSED
    assert vocabulary.types[vocabulary.tokens.index("<0x41>")] == BYTE
    assert vocabulary.types[vocabulary.tokens.index("<|end|>")] == CONTROL
    assert vocabulary.types[vocabulary.tokens.index("<note>")] == USER_DEFINED


def test_tokens_without_an_embedding_row_are_dropped_and_said(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "llama")
    vocabulary = read_vocabulary(tmp_path, 602)
    assert len(vocabulary.tokens) == 602
    assert vocabulary.notes == ("1 tokens have no embedding row and were dropped: <note>",)


def test_every_end_of_generation_config_stops(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    write_checkpoint(folder, "qwen2")
    ids = [byte_level_tokenizer("qwen2").token_to_id(text) for text in ("<|im_end|>", "<|endoftext|>", "<tool_call>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    with converted(folder) as model:
        assert model.vocab.eos == ids[0]
        assert set(ids) <= model.vocab.eog_tokens
    assert read_card(tmp_path / "tiny.gguf").special_token_ids["eos"] == ids[0]


@pytest.mark.parametrize("where", ["jinja", "list", "json"])
def test_the_chat_template_is_found_wherever_it_lies(tmp_path: Path, where: str) -> None:
    write_checkpoint(tmp_path, "qwen2")
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    if where == "jinja":
        (tmp_path / "chat_template.jinja").write_text("{{ 'file' }}", encoding="utf-8")
        expected = "{{ 'file' }}"
    elif where == "list":
        named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
        settings["chat_template"], expected = named, "plain"
    else:
        del settings["chat_template"]
        (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "old"}))
        expected = "old"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_vocabulary(tmp_path, 640).chat_template == expected


def test_an_unknown_pretokenizer_stops_with_its_checksum_and_the_override(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    write_checkpoint(folder, "qwen2")
    document = json.loads((folder / "tokenizer.json").read_text())
    split = document["pre_tokenizer"]["pretokenizers"][0]
    split["pattern"]["Regex"] = QWEN2_PATTERN.replace("'ll", "'LL")
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"checksum [0-9a-f]{64}.*--pre"):
        plan_base(open_checkpoint(folder), "F16", name="tiny")
    with converted(folder, pre="qwen2") as model:
        assert model.vocab.tokenize("hello")
    with pytest.raises(CheckpointError, match="'nonsense' is no pre-tokenizer; known: "):
        plan_base(open_checkpoint(folder), "F16", name="tiny", pre="nonsense")


def test_structures_are_told_apart() -> None:
    """The same pattern with another digit rule, another merge rule or another normalizer is another tokenizer."""
    qwen2 = json.loads(byte_level_tokenizer("qwen2").to_str())
    llama3 = json.loads(byte_level_tokenizer("llama3").to_str())
    assert identify_pretokenizer(qwen2, []) == "qwen2"
    assert identify_pretokenizer(llama3, []) == "llama-bpe"
    llama3["model"]["ignore_merges"] = False
    assert identify_pretokenizer(llama3, []) == "smaug-bpe"
    qwen2["normalizer"] = {"type": "Lowercase"}
    with pytest.raises(CheckpointError):
        identify_pretokenizer(qwen2, [])


def test_the_other_known_structures() -> None:
    digits = {"type": "Digits", "individual_digits": True}
    byte_level = json.loads(pre_tokenizers.ByteLevel(add_prefix_space=False).__getstate__())
    assert identify_pretokenizer({"model": {}, "pre_tokenizer": byte_level}, []) == "gpt-2"
    sequence = {"type": "Sequence", "pretokenizers": [digits, byte_level]}
    assert identify_pretokenizer({"model": {}, "pre_tokenizer": sequence}, []) == "smollm"
    assert {"qwen2", "llama-bpe", "tekken", "gpt-4o", "smollm"} <= set(known_pretokenizers())


def test_damaged_tokenizers_are_one_sentence(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "llama")
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match="no SentencePiece model"):
        read_vocabulary(tmp_path, 640)
    (tmp_path / "tokenizer.model").unlink()
    with pytest.raises(CheckpointError, match=r"neither tokenizer\.json nor tokenizer\.model"):
        read_vocabulary(tmp_path, 640)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}))
    with pytest.raises(CheckpointError, match="holds a Unigram model"):
        read_vocabulary(tmp_path, 640)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 1 << 40}}}))
    with pytest.raises(CheckpointError, match="token id of"):
        read_vocabulary(tmp_path, 640)


def test_fillers_are_not_named_among_dropped_tokens(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "llama")
    (tmp_path / "added_tokens.json").write_text('{"<far>": 650}')
    assert read_vocabulary(tmp_path, 640).notes == ("1 tokens have no embedding row and were dropped: <far>",)


def test_a_vocabulary_that_loses_its_end_token_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "llama")
    (tmp_path / "added_tokens.json").write_text('{"<the end>": 650}')
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": "<the end>"}))
    with pytest.raises(CheckpointError, match="'<the end>' is number 650 and the model has 640 embedding rows"):
        read_vocabulary(tmp_path, 640)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("added_tokens.json", {"<a>": "one"}),
        ("added_tokens.json", {"<a>": [1]}),
        ("tokenizer_config.json", {"added_tokens_decoder": [1, 2]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"5": "text"}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "<a>"}}}),
        ("generation_config.json", {"eos_token_id": {"id": 2}}),
        ("generation_config.json", {"eos_token_id": ["two"]}),
    ],
)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_files_of_another_shape_are_one_sentence(
    tmp_path: Path, kind: str, file: str, content: dict[str, object]
) -> None:
    write_checkpoint(tmp_path, kind)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="the tokenizer's JSON files are not as they should be"):
        read_vocabulary(tmp_path, 640)


@pytest.mark.parametrize("part", ["model", "added_tokens", "pre_tokenizer", "normalizer"])
@pytest.mark.parametrize("wrong", [[], ["a"], "text", 7])
def test_a_tokenizer_json_of_another_shape_never_ends_in_a_traceback(tmp_path: Path, part: str, wrong: object) -> None:
    write_checkpoint(tmp_path, "qwen2")
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**document, part: wrong}))
    with contextlib.suppress(CheckpointError):
        read_vocabulary(tmp_path, 640)
