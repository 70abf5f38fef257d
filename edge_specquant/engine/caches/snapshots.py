"""KV cells of branches left behind, in a byte budget: what a prompt would throw away is kept, what fits better returns.

Takes a cache and the prompt it is about to hold. With files (`snapshot_files.py`) the cells outlive the process.
Knows nothing of text or conversations.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .kv_cache import KVCache
from .snapshot_files import SnapshotFiles

MIN_TOKENS = 64
"""Cells fewer than this are decoded again sooner than they are kept."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cells of one sequence: tokens (n,), and the engine's bytes for them."""

    tokens: NDArray[np.int32]
    state: NDArray[np.uint8]

    @property
    def n_bytes(self) -> int:
        """What it costs to keep."""
        return self.state.nbytes + self.tokens.nbytes


class Snapshots:
    """Snapshots by variant, the least recently used dropped first. budget in bytes; 0 keeps none.

    files(variant) gives the variant's files, or None where nothing is kept on disk.
    """

    def __init__(self, budget: int, files: Callable[[str], SnapshotFiles | None] | None = None) -> None:
        self.budget = budget
        self._files = files or (lambda _variant: None)
        self._held: OrderedDict[tuple[str, bytes], Snapshot] = OrderedDict()
        self.n_restored = 0

    @property
    def n_bytes(self) -> int:
        """Bytes held in memory."""
        return sum(snapshot.n_bytes for snapshot in tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def prepare(self, variant: str, cache: KVCache, prompt: Sequence[int]) -> list[str]:
        """Puts the cells with the longest prefix of the prompt into the cache, keeping those they replace.

        Gives notices: what could not be used, a line each.
        """
        wanted = np.asarray(prompt, dtype=np.int32)
        can_truncate = cache.context.can_truncate
        shared = cache.reachable(_usable(np.asarray(cache.tokens, dtype=np.int32), wanted, True))
        held, in_memory = self._best(variant, wanted, can_truncate)
        files = self._files(variant)
        on_disk = files.best(lambda tokens: _usable(tokens, wanted, can_truncate)) if files else None
        if cache.n_past - shared >= MIN_TOKENS:
            self.keep(variant, cache)
        if on_disk and on_disk.n_usable >= max(in_memory, shared) + MIN_TOKENS:
            loaded = on_disk.load()
            self.n_restored += loaded is not None and cache.restore(*loaded)
        elif held and in_memory >= shared + MIN_TOKENS:
            self.n_restored += cache.restore(held.tokens.tolist(), held.state)
        return files.take_notices() if files else []

    def keep(self, variant: str, cache: KVCache) -> None:
        """Remembers what the cache holds; a snapshot of a prefix of it is dropped for it."""
        tokens = np.asarray(cache.tokens, dtype=np.int32)
        if tokens.size < MIN_TOKENS or not self.budget:
            return
        for key in [key for key in self._held if key[0] == variant]:
            other = self._held[key].tokens
            if other.size >= tokens.size and _shared(other, tokens) == tokens.size:
                self._held.move_to_end(key)
                return
            if _shared(other, tokens) == other.size:
                del self._held[key]
        snapshot = Snapshot(tokens, cache.save())
        if snapshot.n_bytes > self.budget:
            return
        while self._held and self.n_bytes + snapshot.n_bytes > self.budget:
            (dropped_variant, _), dropped = self._held.popitem(last=False)
            self._write(dropped_variant, dropped)
        self._held[variant, tokens.tobytes()] = snapshot

    def flush(self) -> None:
        """Writes all that is held to the files, where there are any."""
        for (variant, _), snapshot in self._held.items():
            self._write(variant, snapshot)

    def _write(self, variant: str, snapshot: Snapshot) -> None:
        files = self._files(variant)
        if files:
            files.write(snapshot.tokens, snapshot.state)

    def _best(self, variant: str, wanted: NDArray[np.int32], can_truncate: bool) -> tuple[Snapshot | None, int]:
        best, n_best = None, 0
        for key, snapshot in self._held.items():
            n_usable = _usable(snapshot.tokens, wanted, can_truncate) if key[0] == variant else 0
            if n_usable > n_best:
                best, n_best = snapshot, n_usable
        return best, n_best


def _shared(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    n = min(a.size, b.size)
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if differs.size else n


def _usable(held: NDArray[np.int32], wanted: NDArray[np.int32], can_truncate: bool) -> int:
    """Cells that save decoding: the common prefix, short of the prompt's last token, whose logits are needed."""
    n = min(_shared(held, wanted), wanted.size - 1)
    return n if can_truncate or n == held.size else 0
