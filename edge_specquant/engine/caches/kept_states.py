"""States kept of one sequence, to go back to where a context cannot drop a suffix: one for the draft being verified, a
few where prompts ended.

A state is the part that no truncation brings back (recurrent layers, windows), by the length it belongs to; the other
cells stay where they are. Times what it does: the controller counts it. Knows nothing of tokens.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ...native.protocol import N_KEPT_STATES, Context

MAX_KEPT = N_KEPT_STATES - 1
"""States of earlier prompts, the oldest given up first; one more is of the draft under way."""
_MEMORY = 0.3  # weight of the newest time in a running average


class KeptStates:
    """By length. save_s, restore_s: what one takes here, a running average, None before the first; spent_s: of all."""

    def __init__(self, context: Context, seq: int) -> None:
        self._context = context
        self._seq = seq
        self._kept: dict[int, NDArray[np.uint8]] = {}
        self._braced: tuple[int, NDArray[np.uint8]] | None = None
        self._spare: NDArray[np.uint8] | None = None
        self.are_possible = True
        self.spent_s = 0.0
        self.save_s: float | None = None
        self.restore_s: float | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes held."""
        braced = self._braced[1].nbytes if self._braced else 0
        return braced + sum(state.nbytes for state in self._kept.values())

    def keep(self, n: int) -> None:
        """Keeps the state of now, which holds n cells."""
        if n == 0 or n in self._kept:
            return
        state = self._save(None)
        if state is not None:
            self._kept[n] = state
            while len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]

    def brace(self, n: int) -> None:
        """Keeps the state of now, n cells, until the next call."""
        if n == 0 or n in self._kept or (self._braced and self._braced[0] == n):
            return
        state = self._save(self._braced[1] if self._braced else self._spare)
        self._braced = None if state is None else (n, state)

    def longest(self, n: int) -> int:
        """Cells of the longest state of at most n; 0 is none."""
        lengths = [length for length in (*self._kept, *([self._braced[0]] if self._braced else ())) if length <= n]
        return max(lengths, default=0)

    def restore(self, n: int) -> int:
        """Goes back to the longest state of at most n cells and gives its length; 0, and undefined, where none fits."""
        length = self.longest(n)
        if not length:
            return 0
        self.forget_beyond(length)
        is_braced = self._braced is not None and self._braced[0] == length
        state = self._braced[1] if is_braced and self._braced else self._kept[length]
        begun = time.perf_counter()
        fits = self._context.load_partial(state, length, seq=self._seq)
        seconds = time.perf_counter() - begun
        self.spent_s += seconds
        self.restore_s = _averaged(self.restore_s, seconds)
        self.are_possible = self.are_possible and fits
        return length if fits else 0

    def forget_beyond(self, n: int) -> None:
        """States of more than n cells are no longer true."""
        for length in [length for length in self._kept if length > n]:
            del self._kept[length]
        if self._braced and self._braced[0] > n:
            self._spare, self._braced = self._braced[1], None

    def clear(self) -> None:
        """Nothing is held any more."""
        self.forget_beyond(0)

    def _save(self, into: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
        begun = time.perf_counter()
        state = self._context.save_partial(seq=self._seq, into=into)
        seconds = time.perf_counter() - begun
        self.spent_s += seconds
        self.save_s = _averaged(self.save_s, seconds)
        self.are_possible = self.are_possible and state is not None
        return state


def _averaged(known: float | None, seconds: float) -> float:
    return seconds if known is None else known + _MEMORY * (seconds - known)
