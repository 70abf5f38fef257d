"""Tiny models: deterministic, loadable, able to tokenize anything, and not degenerate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_specquant.errors import UsageError
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.native.selftest.tiny import write_tiny_llama


def greedy(path: Path, prompt: str, n_tokens: int) -> list[int]:
    """Token ids of a plain greedy continuation."""
    params = ContextParams(n_ctx=128, n_batch=64, n_threads=1)
    with NativeModel(path, use_extra_bufts=False) as model, model.context(params) as context:
        tokens, n_past, out = [1, *model.vocab.tokenize(prompt)], 0, list[int]()
        while len(out) < n_tokens:
            logits = context.decode(tokens, n_past)
            n_past += len(tokens)
            tokens = [int(np.argmax(logits[0]))]
            out += tokens
        return out


def test_equal_arguments_give_equal_bytes_and_seeds_differ(tmp_path: Path) -> None:
    one, same, other = (write_tiny_llama(tmp_path / f"{i}.gguf", seed=seed) for i, seed in enumerate((3, 3, 4)))
    assert one.read_bytes() == same.read_bytes() != other.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.gguf", "1.gguf", "2.gguf"]


@pytest.mark.parametrize("n_embd", [256, 288])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_every_shape_loads_and_speaks_with_variety(tmp_path: Path, n_embd: int, tied: bool, dtype: str) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", n_embd=n_embd, tied=tied, dtype=dtype, n_padding_tokens=7)
    tokens = greedy(path, "Hello", 24)
    assert len(set(tokens)) >= 8, "the continuation loops"


def test_padding_rows_enlarge_the_vocabulary(tmp_path: Path) -> None:
    plain = NativeModel(write_tiny_llama(tmp_path / "a.gguf"), use_extra_bufts=False, vocab_only=True)
    padded = NativeModel(
        write_tiny_llama(tmp_path / "b.gguf", n_padding_tokens=5), use_extra_bufts=False, vocab_only=True
    )
    with plain, padded:
        assert padded.vocab.n_tokens == plain.vocab.n_tokens + 5


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="\0▁", exclude_categories=["Cs"]), max_size=40))
def test_any_text_survives_tokenizing(vocab_model: NativeModel, text: str) -> None:
    pieces = b"".join(vocab_model.vocab.piece(t) for t in vocab_model.vocab.tokenize(text))
    # SentencePiece writes a space as "▁" and puts one in front, so that one character cannot come back.
    assert pieces.decode() == (f" {text}" if text else "")


@pytest.fixture(scope="module")
def vocab_model(tiny_gguf: Path) -> NativeModel:
    return NativeModel(tiny_gguf, use_extra_bufts=False, vocab_only=True)


@pytest.mark.parametrize("arguments", [{"n_embd": 250}, {"n_embd": 32}, {"n_layer": 0}, {"dtype": "Q8_0"}])
def test_impossible_sizes_are_refused(tmp_path: Path, arguments: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        write_tiny_llama(tmp_path / "m.gguf", **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
