"""Drafts of another vocabulary are refused by name (case A15); pieces joined are the whole text (cases B1, B4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_specquant.engine.session import require_same_vocabulary
from edge_specquant.errors import VocabularyError
from edge_specquant.native.fake import FakeModel, FakeVocab, hashed
from edge_specquant.native.model import NativeModel


class OtherVocab(FakeVocab):
    def piece(self, token: int, *, special: bool = False) -> bytes:
        return b"?" if token == 100 else super().piece(token, special=special)


def test_the_first_differing_token_is_named() -> None:
    other = FakeModel(hashed(1), vocab=OtherVocab())
    with pytest.raises(VocabularyError, match="token 100 is b'\\?', not b'd'"):
        require_same_vocabulary(FakeModel(hashed(1)), other)


def test_padding_rows_are_no_difference() -> None:
    require_same_vocabulary(FakeModel(hashed(1)), FakeModel(hashed(1), vocab=FakeVocab(n_control=9)))


@pytest.mark.parametrize(
    "text",
    [
        "hello world",
        " leading",
        "two  spaces",
        "tab\tnew\nline",
        "é漢字👩\u200d👩\u200d👧 Привет",
        "<s> and </s>",
        "x\x00y",
    ],
)
def test_pieces_joined_are_the_text(tiny_gguf: Path, text: str) -> None:
    with NativeModel(tiny_gguf, use_extra_bufts=True, vocab_only=True) as model:
        joined = b"".join(model.vocab.piece(t) for t in model.vocab.tokenize(text)).decode()
        assert joined in (text, " " + text)  # SentencePiece puts one space in front of a text


def test_lone_surrogates_become_replacement_characters(tiny_gguf: Path) -> None:
    with NativeModel(tiny_gguf, use_extra_bufts=True, vocab_only=True) as model:
        assert model.vocab.tokenize("a\udc80b") == model.vocab.tokenize("a?b")
