"""The bytes of tokens, for log-probabilities and prompts given as ids, and the chat template, for tools.

Opens the family's vocabulary alone (no weights) in this process when it is first needed; replies come from elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ...gguf.family.family import Family
from ...native.opening import open_model
from ...native.protocol import Model, Vocab
from ..errors import bad_request


class Pieces:
    """Bytes by token id. `opening` is called once, by whoever asks first. For any thread."""

    def __init__(self, opening: Callable[[], Model]) -> None:
        self._opening = opening
        self._lock = threading.Lock()
        self._model: Model | None = None

    def piece(self, token: int) -> bytes:
        """The bytes of a token; of a control token, its marker."""
        return self.vocab().piece(token, special=True)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a prompt given as ids. Raises ApiError 400 for an id there is not."""
        vocab = self.vocab()
        if any(not 0 <= token < vocab.n_tokens for token in tokens):
            raise bad_request(f"a token id of the prompt is none of the vocabulary's {vocab.n_tokens}", "prompt")
        return b"".join(vocab.piece(token, special=True) for token in tokens).decode("utf-8", "replace")

    def vocab(self) -> Vocab:
        """Opened at the first call, which takes a moment. Raises what opening raises."""
        with self._lock:
            if self._model is None:
                self._model = self._opening()
            return self._model.vocab

    def template(self) -> str | None:
        """The family's chat template, for a conversation with tools."""
        self.vocab()
        assert self._model is not None
        return self._model.tool_template or self._model.chat_template

    def close(self) -> None:
        """Frees the vocabulary; twice is fine."""
        with self._lock:
            model, self._model = self._model, None
            if model is not None:
                model.close()


def vocabulary_of(family: Family) -> Model:
    """The vocabulary that all siblings share, from the smallest file; no weights are loaded."""
    smallest = min(family.variants.values(), key=lambda variant: variant.n_bytes)
    return open_model(family.path(smallest.name), vocab_only=True)
