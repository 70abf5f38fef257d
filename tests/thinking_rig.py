"""Scripted models that think: a vocabulary with the tags of a thought, and replies that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edge_specquant.native.fake import N_BYTES, FakeVocab, NextLogits, one_hot

ASSISTANT = tuple(b"Assistant:")  # how the template without control markers ends a prompt


def thinking_vocab() -> FakeVocab:
    """A fresh one."""
    return FakeVocab(tags=("<think>", "</think>"))


def saying(*replies: str) -> NextLogits:
    """Answers the conversation's nth turn with the nth reply, token by token, then ends."""
    vocab = thinking_vocab()
    scripts = [vocab.tokenize(reply, parse_special=True) for reply in replies]

    def next_logits(history: Sequence[int]) -> Any:
        ids = tuple(history)
        ends = [at + len(ASSISTANT) for at in range(len(ids)) if ids[at : at + len(ASSISTANT)] == ASSISTANT]
        script = scripts[min(len(ends), len(scripts)) - 1] if ends else scripts[0]
        done = len(ids) - (ends[-1] if ends else 0)
        return one_hot(script[done] if done < len(script) else N_BYTES, vocab.n_tokens)

    return next_logits
