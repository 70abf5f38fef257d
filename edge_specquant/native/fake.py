"""A backend without an engine: scripted logits behind the same protocol as llama.cpp. Public, for tests and docs.

A FakeModel is a function from history to the next row of logits. Its contexts keep real positions, refuse what the
native context refuses, and can be told to fail, so that every edge of the loop can be driven by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import AbortedError, ContextFullError, DecodeError
from .protocol import Chunk, ContextParams, Logits, Marker

NextLogits = Callable[[Sequence[int]], Logits]

N_BYTES = 256


class FakeVocab:
    """Byte tokens 0..255, then EOS, BOS and the tags: control tokens if they look like <|this|>, else user-defined."""

    def __init__(self, n_control: int = 4, tags: Sequence[str] = ()) -> None:
        self.n_tokens = N_BYTES + max(n_control, 2 + len(tags))
        self.eos: int | None = N_BYTES
        self.bos: int | None = N_BYTES + 1
        self.add_bos = False
        self.eog_tokens = frozenset({N_BYTES})
        self.special_tokens = {"eos_token": N_BYTES, "bos_token": N_BYTES + 1}
        self.markers: tuple[Marker, ...] = (
            Marker("<eos>", N_BYTES),
            Marker("<bos>", N_BYTES + 1),
            *(Marker(tag, N_BYTES + 2 + i, tag.startswith("<|")) for i, tag in enumerate(tags)),
        )

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """One token a byte; markers become their ids only if parse_special."""
        ids = {marker.text: marker.token for marker in self.markers} if parse_special else {}
        pattern = "|".join(re.escape(marker) for marker in ids) or "(?!)"
        out: list[int] = []
        for part in re.split(f"({pattern})", text):
            out += [ids[part]] if part in ids else part.encode("utf-8", "replace")
        return out

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The byte itself; control tokens are empty unless special."""
        if token < N_BYTES:
            return bytes([token])
        if self.is_control(token) and not special:
            return b""
        names = {marker.token: marker.text for marker in self.markers}
        return names.get(token, f"<control{token}>").encode()

    def is_eog(self, token: int) -> bool:
        """True for EOS."""
        return token in self.eog_tokens

    def is_control(self, token: int) -> bool:
        """True past the bytes, but for user-defined tags."""
        return token >= N_BYTES and all(marker.is_control for marker in self.markers if marker.token == token)


@dataclass(slots=True)
class FakeModel:
    """Weights are a function: history -> logits row of shape (n_vocab,)."""

    next_logits: NextLogits
    vocab: FakeVocab = field(default_factory=FakeVocab)
    n_ctx_train: int = 1 << 20
    chat_template: str | None = None
    tool_template: str | None = None
    can_truncate: bool = True
    can_save: bool = True
    contexts: list[FakeContext] = field(default_factory=list)

    def context(self, params: ContextParams) -> FakeContext:
        """A context over this model; kept in `contexts` for inspection."""
        made = FakeContext(self, params)
        self.contexts.append(made)
        return made

    def close(self) -> None:
        """Nothing to free."""


class FakeContext:
    """Keeps token lists as its cells; counts what it was asked."""

    def __init__(self, model: FakeModel, params: ContextParams) -> None:
        self.model = model
        self.params = params
        self.n_ctx = params.n_ctx
        self.n_batch = params.n_batch
        self.max_rows = min(params.max_rows, params.n_batch)
        self.n_vocab = model.vocab.n_tokens
        self.cells: dict[int, list[int]] = {}
        self.decoded: list[int] = []
        self.widths: list[int] = []
        self.can_truncate = model.can_truncate
        self.n_rollback = 0
        self.n_embd = 0
        self.refuse_truncation_at: int | None = None
        self._n_truncations = 0
        self._aborted = False
        self.before_decode: Callable[[], None] | None = None

    def decode(self, tokens: Sequence[int], n_past: int, n_rows: int = 1, *, seq: int = 0) -> Logits:
        """As NativeContext.decode, with the same refusals."""
        n = len(tokens)
        if self.before_decode:
            self.before_decode()
        if self._aborted:
            raise AbortedError(f"stopped while decoding {n} tokens at position {n_past}")
        if not 0 < n <= self.n_batch:
            raise DecodeError(f"a batch of {n} tokens; it must hold 1 to n_batch = {self.n_batch}")
        if not 0 <= n_rows <= min(n, self.max_rows):
            raise DecodeError(f"{n_rows} logits rows from {n} tokens; at most {min(n, self.max_rows)} here")
        if n_past + n > self.n_ctx:
            raise ContextFullError(f"{n_past} + {n} tokens do not fit a context of {self.n_ctx}; raise --ctx")
        cells = self.cells.setdefault(seq, [])
        if n_past != len(cells):
            raise DecodeError(f"position {n_past} does not follow the {len(cells)} cells of sequence {seq}")
        if any(not 0 <= token < self.n_vocab for token in tokens):
            raise DecodeError(f"a token of {list(tokens)} is outside the vocabulary of {self.n_vocab}")
        rows = []
        for i, token in enumerate(tokens):
            cells.append(token)
            if i >= n - n_rows:
                rows.append(np.asarray(self.model.next_logits(tuple(cells)), dtype=np.float32))
        self.decoded += tokens
        self.widths.append(n)
        return np.stack(rows) if rows else np.empty((0, self.n_vocab), dtype=np.float32)

    def decode_mixed(self, chunks: Sequence[Chunk]) -> list[Logits]:
        """As NativeContext.decode_mixed; a batch is counted once in `widths`."""
        n, n_rows = sum(len(chunk.tokens) for chunk in chunks), sum(chunk.n_rows for chunk in chunks)
        if not 0 < n <= self.n_batch or n_rows > self.max_rows:
            raise DecodeError(f"a mixed batch of {n} tokens and {n_rows} rows; at most {self.n_batch}, {self.max_rows}")
        n_before = len(self.widths)
        rows = [self.decode(chunk.tokens, chunk.n_past, chunk.n_rows, seq=chunk.seq) for chunk in chunks]
        self.widths[n_before:] = [n]
        return rows

    def truncate(self, n: int, *, seq: int = 0) -> bool:
        """Keeps n cells, unless told to refuse this call."""
        cells = self.cells.setdefault(seq, [])
        if len(cells) <= n:
            return len(cells) == n
        self._n_truncations += 1
        if not self.model.can_truncate or self._n_truncations == self.refuse_truncation_at:
            return False
        del cells[n:]
        return True

    def save_partial(self, *, seq: int = 0, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The number of cells stands for their state; None where the model cannot save."""
        del into
        return np.array([self.used(seq=seq)], dtype=np.int32).view(np.uint8) if self.model.can_save else None

    def load_partial(self, data: NDArray[np.uint8], n: int, *, seq: int = 0) -> bool:
        """Keeps n cells; False when the state is of another length."""
        if int(data.view(np.int32)[0]) != n:
            return False
        del self.cells.setdefault(seq, [])[n:]
        return True

    def keep_hidden(self) -> bool:
        """A script has no hidden states."""
        return False

    def decode_hidden(self, tokens: Sequence[int], hidden: NDArray[np.float32], n_past: int) -> Logits:
        """A script has none."""
        del tokens, hidden, n_past
        raise DecodeError("there are no next-token layers here")

    def hidden(self, n: int) -> NDArray[np.float32]:
        """None."""
        return np.zeros((n, 0), dtype=np.float32)

    def used(self, *, seq: int = 0) -> int:
        """Positions held by the sequence."""
        return len(self.cells.get(seq, []))

    def clear(self, *, seq: int = 0) -> None:
        """Forgets the whole sequence."""
        self.cells.pop(seq, None)

    def save_state(self, *, seq: int = 0) -> NDArray[np.uint8]:
        """The cells' tokens as bytes."""
        return np.array(self.cells.get(seq, []), dtype=np.int32).view(np.uint8)

    def load_state(self, data: NDArray[np.uint8], *, seq: int = 0) -> bool:
        """Replaces the cells; False when they do not fit or are no cells."""
        if data.size % 4 or data.size // 4 > self.n_ctx:
            return False
        self.cells[seq] = [int(token) for token in data.view(np.int32)]
        return True

    def copy_state_from(self, other: FakeContext, *, seq: int = 0) -> bool:
        """Takes over the other's cells."""
        if other.n_vocab != self.n_vocab or len(other.cells.get(seq, [])) > self.n_ctx:
            return False
        self.cells[seq] = list(other.cells.get(seq, []))
        return True

    def abort(self) -> None:
        """Later decodes fail until `resume`."""
        self._aborted = True

    def resume(self) -> None:
        """Clears an abort."""
        self._aborted = False

    def close(self) -> None:
        """Nothing to free."""


def one_hot(token: int, n_vocab: int = N_BYTES + 4, height: float = 20.0) -> Logits:
    """A row whose argmax is token."""
    row = np.zeros(n_vocab, dtype=np.float32)
    row[token] = height
    return row


def scripted(script: Sequence[int], n_prompt: int, n_vocab: int = N_BYTES + 4) -> NextLogits:
    """Always answers script[i] as the i-th token after the prompt, whatever was said before; then EOS."""

    def next_logits(history: Sequence[int]) -> Logits:
        position = len(history) - n_prompt
        return one_hot(script[position] if 0 <= position < len(script) else N_BYTES, n_vocab)

    return next_logits


def hashed(seed: int, n_vocab: int = N_BYTES + 4, agree: float = 1.0, spread: float = 3.0) -> NextLogits:
    """Random but repeatable logits from the last three tokens; `agree` below 1 departs from seed's answer that often.

    Two models with the same seed and different `agree` behave as target and draft with about that acceptance.
    """

    def next_logits(history: Sequence[int]) -> Logits:
        key = [seed, *(int(token) + 1 for token in history[-3:])]
        row = np.random.default_rng(key).normal(0.0, spread, n_vocab).astype(np.float32)
        row[N_BYTES:] = -30.0
        if agree < 1 and np.random.default_rng([*key, 77]).random() > agree:
            row = np.roll(row[:N_BYTES], 1)
            row = np.concatenate([row, np.full(n_vocab - N_BYTES, -30.0, dtype=np.float32)])
        return row

    return next_logits
