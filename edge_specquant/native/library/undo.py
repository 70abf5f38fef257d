"""What of a sequence a context can take back: any suffix of an attention cache, the last few tokens of a recurrent
state that keeps copies of itself (n_rs_seq), and nothing else without a saved state.

The engine allows more than is true: a state copy older than the last batch is stale, a second roll-back before the next
batch is refused, a batch of several sequences may move the copies of those that are not in it (find_slot in
llama-memory-recurrent.cpp), a window that has moved on has lost the cells before it, and where sequences share the
cells any of them may write over what no window sees any more (find_slot in llama-kv-cache.cpp). Knows no tokens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .library import engine


class Undo:
    """Of one context. is_recurrent: part of its memory is a state; window: tokens that some layers look back and whose
    cells alone are safe, None where all are; is_shared: by several sequences.
    """

    def __init__(self, handle: Any, *, is_recurrent: bool, window: int | None, is_shared: bool) -> None:
        lib = engine()
        self._handle = handle
        self._memory = lib.llama_get_memory(handle)
        self._window = window
        self._is_shared = is_shared
        self.n_rollback: int = lib.llama_n_rs_seq(handle)
        self._is_recurrent = is_recurrent or self.n_rollback > 0
        self.can_truncate = not self._is_recurrent and window is None
        self._fresh: dict[int, int] = {}
        self._undefined: set[int] = set()

    def decoded(self, n_tokens: Mapping[int, int]) -> None:
        """A batch went well: so many tokens of each sequence."""
        if not self._is_recurrent:
            return
        if len(n_tokens) > 1:
            self._fresh.clear()
        for seq, n in n_tokens.items():
            self._fresh[seq] = min(self.n_rollback, n - 1)

    def failed(self, seqs: Iterable[int]) -> None:
        """A batch did not: the engine rolled these sequences back by itself, to copies that it never wrote."""
        if self._is_recurrent:
            self._fresh.clear()
            self._undefined.update(seqs)

    def loaded(self, seq: int) -> None:
        """All of the sequence was replaced."""
        self._fresh[seq] = 0
        self._undefined.discard(seq)

    def truncate(self, n: int, seq: int) -> bool:
        """Keeps positions 0..n-1; False, and nothing changed, where that is impossible."""
        lib = engine()
        if seq in self._undefined:
            return False
        n_surplus = int(lib.llama_memory_seq_pos_max(self._memory, seq)) + 1 - n
        if n_surplus <= 0:
            return n_surplus == 0
        if self._is_recurrent and n_surplus > self._fresh.get(seq, 0):
            return False
        if self._window is not None and (self._is_shared or self._n_lost(seq) > max(0, n - self._window)):
            return False
        self._fresh[seq] = 0
        return bool(lib.llama_memory_seq_rm(self._memory, seq, n, -1))

    def _n_lost(self, seq: int) -> int:
        """Positions before the first that a window still holds."""
        return int(engine().llama_memory_seq_pos_min(self._memory, seq))

    def clear(self, seq: int) -> None:
        """Forgets the sequence."""
        self.loaded(seq)
        engine().llama_memory_seq_rm(self._memory, seq, -1, -1)

    def save(self, seq: int, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The part that `truncate` cannot bring back, as bytes; None where the engine gives none.

        into: an older one, whose memory is used again where it is as large (fresh pages cost as much as the copy).
        """
        lib = engine()
        size = int(lib.llama_state_seq_get_size_ext(self._handle, seq, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY))
        data = into if into is not None and into.size == size else np.empty(size, dtype=np.uint8)
        written = lib.llama_state_seq_get_data_ext(
            self._handle, _bytes(data), size, seq, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        )
        return data if written == size else None

    def load(self, data: NDArray[np.uint8], n: int, seq: int) -> bool:
        """Back to what `save` gave, when the sequence held n positions; False when the bytes do not fit."""
        lib = engine()
        flags = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        if not lib.llama_state_seq_set_data_ext(self._handle, _bytes(data), data.size, seq, flags):
            return False
        self.loaded(seq)
        # The attention part is still ahead, unless somebody emptied it.
        is_cut = bool(lib.llama_memory_seq_rm(self._memory, seq, n, -1))
        return is_cut and int(lib.llama_memory_seq_pos_max(self._memory, seq)) + 1 == n


def _bytes(data: NDArray[np.uint8]) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
