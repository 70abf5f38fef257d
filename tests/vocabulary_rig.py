"""Vocabularies with given control tokens: the same one for the engine and for transformers' tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
from chat_templates import Maker
from tiny_checkpoints import byte_level_tokenizer, sentencepiece_as_json
from tokenizers import AddedToken, Tokenizer, processors

from edge_specquant.gguf.checkpoint.tokenizer import read_vocabulary, vocabulary_fields
from edge_specquant.native.model import NativeModel
from edge_specquant.native.opening import open_model


@dataclass
class Twins:
    """One vocabulary twice. `tokenizer` is transformers' PreTrainedTokenizerFast with the maker's template."""

    model: NativeModel
    tokenizer: Any


def twins(folder: Path, maker: Maker, kind: str = "bpe") -> Twins:
    """kind: "bpe" (Llama 3's pre-tokenizer) or "spm" (SentencePiece with a space in front of every text)."""
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    tokenizer = byte_level_tokenizer("llama3") if kind == "bpe" else sentencepiece_as_json(prefix=True)
    tokenizer.post_processor = processors.Sequence([])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in maker.control])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in maker.tags])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": maker.bos, "eos_token": maker.eos}
    named = {key: text for key, text in names.items() if text is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps({**named, "add_bos_token": maker.wants_bos}))
    path = _vocabulary_file(folder, tokenizer)
    sources = maker.source if isinstance(maker.source, str) else dict(maker.source)
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=sources, **named)
    return Twins(open_model(path, vocab_only=True), theirs)


def _vocabulary_file(folder: Path, tokenizer: Tokenizer) -> Path:
    """A GGUF without weights, its metadata made by the converter's own code."""
    path = folder / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_feed_forward_length):
        add(64)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in vocabulary_fields(read_vocabulary(folder, tokenizer.get_vocab_size())).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
