"""A context and the tokens its cells hold, kept in step: extend, truncate to an absolute length, transplant.

The one place that truncates. A refused truncation empties the cache, so that what it holds is always true; the caller
sees the shorter length and decodes again. Knows nothing of drafts or text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import EngineError
from ...native.protocol import Context, Logits

OnProgress = Callable[[int, int], None]


class KVCache:
    """Tokens held by one sequence of a context.

    decode_s: seconds spent in the engine so far. min_width: no decode is narrower, but those that end within the first
    any_width_until cells; shorter batches are padded with throw-away tokens (see `certify.py`). max_width: none is
    wider; None is the context's batch.
    """

    def __init__(self, context: Context, *, seq: int = 0) -> None:
        self.context = context
        self.tokens: list[int] = []
        self.n_refused = 0
        self.min_width = 1
        self.max_width: int | None = None
        self.any_width_until = 0
        self.decode_s = 0.0
        self._seq = seq

    @property
    def n_past(self) -> int:
        """Cells held."""
        return len(self.tokens)

    @property
    def n_ctx(self) -> int:
        """Cells that may be used: what padding to min_width needs is kept back."""
        return self.context.n_ctx - (self.min_width - 1)

    def keep_widths(self, min_width: int, max_width: int | None, *, any_width_until: int = 0) -> None:
        """From now on only these widths; cells that other widths may have written are given up."""
        if (min_width, max_width, any_width_until) != (self.min_width, self.max_width, self.any_width_until):
            self.truncate(0)
            self.min_width, self.max_width, self.any_width_until = min_width, max_width, any_width_until

    def shared_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading tokens the cache already holds."""
        held, wanted = np.asarray(self.tokens, dtype=np.int64), np.asarray(tokens, dtype=np.int64)
        n = min(held.size, wanted.size)
        differs = np.flatnonzero(held[:n] != wanted[:n])
        return int(differs[0]) if differs.size else n

    def truncate(self, n: int) -> bool:
        """Keeps the first n cells. When the cache cannot drop a suffix it is emptied and False returned."""
        if n >= self.n_past:
            return True
        if n == 0 or not self.context.truncate(n, seq=self._seq):
            self.context.clear(seq=self._seq)
            self.tokens.clear()
            self.n_refused += n > 0
            return n == 0
        del self.tokens[n:]
        return True

    def extend(self, tokens: Sequence[int], n_rows: int = 1, progress: OnProgress | None = None) -> Logits:
        """Decodes tokens after what is held, in chunks of n_batch; logits of the last n_rows, (n_rows, n_vocab).

        The rows are the context's view: valid until its next decode. On an error the cache holds what it held before
        the failing chunk. Raises ContextFullError, AbortedError, DecodeError.
        """
        n_batch = min(self.context.n_batch, self.max_width or self.context.n_batch)
        rows = np.empty((0, 0), dtype=np.float32)
        end = len(tokens)
        first_row = end - n_rows
        start = 0
        while start < end:
            stop = min(start + n_batch, end)
            if start < first_row < stop and stop - first_row < n_rows:
                stop = first_row  # rows of one call must come from one decode
            chunk = tokens[start:stop]
            rows = self._decode(chunk, min(n_rows, max(0, stop - first_row)))
            start = stop
            if progress:
                progress(start, end)
        return rows

    def hold(self, tokens: Sequence[int], progress: OnProgress | None = None) -> Logits:
        """Makes the cache hold exactly these tokens, reusing its longest common prefix.

        Returns the logits of the last token, (1, n_vocab).
        """
        self.truncate(min(self.shared_prefix(tokens), len(tokens) - 1))
        return self.extend(tokens[self.n_past :], 1, progress)

    def copy_from(self, other: KVCache) -> bool:
        """Takes over a sibling's cells; False (and unchanged) when the formats do not fit or there is no room."""
        if other.n_past > self.n_ctx or not self.context.copy_state_from(other.context, seq=self._seq):
            return False
        self.tokens = list(other.tokens)
        return True

    def restore(self, tokens: Sequence[int], state: NDArray[np.uint8]) -> bool:
        """Holds these tokens by their saved cells; False (and empty) when the bytes do not fit this context."""
        if len(tokens) > self.n_ctx or not self.context.load_state(state, seq=self._seq):
            self._forget()
            return False
        self.tokens = list(tokens)
        return True

    def save(self) -> NDArray[np.uint8]:
        """The cells of what is held, as bytes."""
        return self.context.save_state(seq=self._seq)

    def extend_padded(self, tokens: Sequence[int], n_rows: int, width: int) -> Logits:
        """As `extend`, widened to `width` by throw-away tokens that leave no cell behind.

        Widths differ in cost (placement/cost/cost_curve.py); a wider batch can be the cheaper one. Padding is left out
        where the context has no room for it, or for more tokens than one batch.
        """
        n = len(tokens)
        if n > self.context.n_batch:
            return self.extend(tokens, n_rows)
        return self._decode(tokens, n_rows, min(width - n, self.context.max_rows - n_rows))

    def _decode(self, tokens: Sequence[int], n_rows: int, n_pad: int = 0) -> Logits:
        """One decode; rows of the last n_rows real tokens."""
        n_past, n = self.n_past, len(tokens)
        room = min(self.context.n_ctx - n_past - n, self.context.n_batch - n)
        least = 1 if n_past + n <= self.any_width_until else self.min_width
        n_pad = max(0, min(max(n_pad, least - n), room))
        batch = [*tokens, *([tokens[-1]] * n_pad)] if n_pad else tokens
        n_asked = n_rows + n_pad if n_rows else 0
        begun = time.perf_counter()
        try:
            rows = self.context.decode(batch, n_past, n_asked, seq=self._seq)
        except EngineError:
            if not self.context.truncate(n_past, seq=self._seq):
                self._forget()
            raise
        self.decode_s += time.perf_counter() - begun
        self.tokens.extend(tokens)
        if n_pad and not self.context.truncate(self.n_past, seq=self._seq):
            self._forget()
            self.n_refused += 1
        return rows[:n_rows]

    def _forget(self) -> None:
        self.context.clear(seq=self._seq)
        self.tokens.clear()
