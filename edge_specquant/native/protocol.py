"""The backend seam: what the engine room asks of a model and a context, whoever provides them.

`model.py`/`context.py` (llama.cpp) and `fake.py` (scripted logits) both provide it. Knows no ctypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]

DEFAULT_N_BATCH = 512
DEFAULT_MAX_ROWS = 64
N_KEPT_STATES = 5  # what engine/caches/kept_states.py holds at most
DEFAULT_N_ROLLBACK = 8  # each is a copy of all recurrent states; longer drafts are braced by one saved state


@dataclass(frozen=True, slots=True)
class ContextParams:
    """How large a context is and how it computes.

    n_ctx, n_batch in tokens; max_rows is the most logits rows one decode may return (it sizes the compute buffer).
    type_k/type_v are KV cache types ("f16", "q8_0", "q4_0"); a quantized V cache needs flash attention.
    n_seq sequences share the cells. n_rollback: copies of a recurrent state kept to take so many tokens back, where the
    architecture can (`Context.n_rollback` tells); caches of attention need none. is_mtp: a context of the next-token
    layers, fed with the hidden states of another. eval_callback is a C callback object
    (see `eval_callback.py`), kept alive here; eval_callback_data is the address handed to it. op_offload: batches of 32
    tokens and more of layers in RAM are computed on a device, which reads their weights over the bus.
    """

    n_ctx: int = 4096
    n_batch: int = DEFAULT_N_BATCH
    max_rows: int = DEFAULT_MAX_ROWS
    n_threads: int = 0
    n_threads_batch: int = 0
    type_k: str = "f16"
    type_v: str = "f16"
    n_seq: int = 1
    n_rollback: int = 0
    is_mtp: bool = False
    flash_attention: bool | None = None
    swa_full: bool = True
    offload_kqv: bool = True
    op_offload: bool = False
    eval_callback: Any = None
    eval_callback_data: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one sequence adds to a mixed batch: tokens at position n_past; logits of the last n_rows are wanted."""

    tokens: Sequence[int]
    n_past: int
    n_rows: int
    seq: int


class Marker(NamedTuple):
    """The text that stands for a token as a whole: of a control token, else of a user-defined one. strips_left and
    strips_right: white space beside it goes (Phi 3).
    """

    text: str
    token: int
    is_control: bool = True
    strips_left: bool = False
    strips_right: bool = False


class Vocab(Protocol):
    """Text to token ids and back."""

    n_tokens: int
    bos: int | None
    eos: int | None
    add_bos: bool

    @property
    def eog_tokens(self) -> frozenset[int]:
        """Every id that ends a generation."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Tokens by the names that templates use: "bos_token", "eos_token" and what else there is."""
        ...

    @property
    def markers(self) -> tuple[Marker, ...]:
        """All texts that `parse_special` turns into one id each."""
        ...

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Token ids of the text, without BOS or EOS added. Control markers become their ids only if parse_special."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token adds to the text; control tokens are empty unless special."""
        ...

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation (EOS, EOT and their like)."""
        ...

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token."""
        ...


class Context(Protocol):
    """One KV cache and the graph that fills it.

    can_truncate: any suffix can be dropped at any time. Where it is False (recurrent states, windows that move on),
    n_rollback of the last decode's tokens can be dropped, once; `save_partial` helps with more.
    """

    n_ctx: int
    n_batch: int
    max_rows: int
    n_vocab: int
    n_embd: int
    can_truncate: bool
    n_rollback: int

    def decode(self, tokens: Sequence[int], n_past: int, n_rows: int = 1, *, seq: int = 0) -> Logits:
        """Appends tokens at position n_past; returns the logits of the last n_rows of them.

        Shape (n_rows, n_vocab), float32, a view that the next decode overwrites.
        Raises ContextFullError, AbortedError, DecodeError. len(tokens) <= n_batch, n_rows <= max_rows.
        """
        ...

    def decode_mixed(self, chunks: Sequence[Chunk]) -> list[Logits]:
        """Several sequences in one decode; each chunk's rows, (n_rows, n_vocab), views as those of `decode`.

        The tokens of all chunks fit n_batch, their rows max_rows. On an error the cells of every chunk are undefined.
        """
        ...

    def truncate(self, n: int, *, seq: int = 0) -> bool:
        """Keeps the first n positions; False when it holds fewer, or this kind of cache cannot drop that suffix."""
        ...

    def save_partial(self, *, seq: int = 0, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """What `truncate` cannot bring back, as bytes; None where there is no such thing. into: memory to use again."""
        ...

    def load_partial(self, data: NDArray[np.uint8], n: int, *, seq: int = 0) -> bool:
        """Keeps the first n positions, as they were when `save_partial` gave these bytes; False when they do not fit.

        The first n positions must be those of that time.
        """
        ...

    def used(self, *, seq: int = 0) -> int:
        """Positions held by the sequence."""
        ...

    def clear(self, *, seq: int = 0) -> None:
        """Forgets the whole sequence."""
        ...

    def save_state(self, *, seq: int = 0) -> NDArray[np.uint8]:
        """The sequence's cells as bytes."""
        ...

    def load_state(self, data: NDArray[np.uint8], *, seq: int = 0) -> bool:
        """Replaces the sequence's cells; False when the bytes do not fit this context (what it then holds is open)."""
        ...

    def copy_state_from(self, other: Any, *, seq: int = 0) -> bool:
        """Takes over another context's cells of the same sequence; False when the formats do not fit."""
        ...

    def keep_hidden(self) -> bool:
        """From now on each decode keeps the hidden states of all its tokens; False where it cannot."""
        ...

    def decode_hidden(self, tokens: Sequence[int], hidden: NDArray[np.float32], n_past: int) -> Logits:
        """Of an MTP context: as `decode`, each token with the hidden state of the position before it, (n, n_embd)."""
        ...

    def hidden(self, n: int) -> NDArray[np.float32]:
        """The hidden states of the last decode's n tokens, (n, n_embd)."""
        ...

    def abort(self) -> None:
        """Stops the running decode from any thread; later decodes fail too until `resume`."""
        ...

    def resume(self) -> None:
        """Clears an abort."""
        ...

    def close(self) -> None:
        """Frees the native memory; calling it twice is fine."""
        ...


class Model(Protocol):
    """Weights and vocabulary."""

    n_ctx_train: int
    chat_template: str | None
    tool_template: str | None
    can_truncate: bool

    @property
    def vocab(self) -> Vocab:
        """The vocabulary."""
        ...

    def context(self, params: ContextParams) -> Context:
        """Makes a context. Raises ContextError."""
        ...

    def close(self) -> None:
        """Frees the weights; contexts must be closed first."""
        ...


Progress = Callable[[float], bool]
