"""A context and the tokens its cells hold, kept in step: extend, truncate to an absolute length, transplant.

The one place that truncates. Where the context refuses, the cache goes back to the longest state it has kept, or is
emptied: what it holds is always true; the caller sees the shorter length and decodes again. States are kept where a
prompt ends and before a draft is verified, unless the context can take so much back by itself. Knows nothing of text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import EngineError
from ...native.protocol import Context, Logits
from .kept_states import KeptStates

OnProgress = Callable[[int, int], None]
OnHidden = Callable[[int, Sequence[int], NDArray[np.float32]], None]
"""First position, tokens, their hidden states (n_tokens, n_embd): of each decode, rejected drafts included."""

_WORTH_A_STATE = 64
"""Tokens of a prompt, fewer than which are decoded again sooner than a state is kept for them."""


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
        self.states = KeptStates(context, seq)
        self.min_width = 1
        self.max_width: int | None = None
        self.any_width_until = 0
        self.decode_s = 0.0
        self.on_hidden: OnHidden | None = None
        self._seq = seq

    @property
    def n_past(self) -> int:
        """Cells held."""
        return len(self.tokens)

    @property
    def can_undo(self) -> bool:
        """Whether a rejected draft can be taken back: False once the context refused, or gave no state to keep."""
        has_a_way = self.context.can_truncate or self.context.n_rollback > 0 or self.states.are_possible
        return has_a_way and self.n_refused == 0

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
        """Keeps the first n cells; False where it had to keep fewer: those of the longest state kept, or none."""
        n = min(n, self.n_past)
        if n and self.context.truncate(n, seq=self._seq):
            del self.tokens[n:]
            self.states.forget_beyond(n)
            return True
        return self._return_to(n)

    def reachable(self, n: int) -> int:
        """How many of the first n cells `truncate(n)` would keep."""
        if n >= self.n_past or self.context.can_truncate:
            return min(n, self.n_past)
        return self.states.longest(n)

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
            self.truncate(self.n_past)
            start = stop
            if progress:
                progress(start, end)
        return rows

    def read(self, prompt: Sequence[int], progress: OnProgress | None = None) -> Logits:
        """As `hold`; where the context cannot go back by itself, states are kept from which the next turn, or another
        reply to this prompt, can go on.
        """
        self.truncate(min(self.shared_prefix(prompt), len(prompt) - 1))
        rest = prompt[self.n_past :]
        n_behind = len(prompt) - self.states.longest(len(prompt) - 1)
        if self.context.can_truncate or n_behind < _WORTH_A_STATE or len(rest) < 2 or self.max_width is not None:
            return self.extend(rest, 1, progress)
        self.states.keep(self.n_past)
        self.extend(rest[:-1], 0, progress)
        self.states.keep(self.n_past)
        return self.extend(rest[-1:], 1)

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
        self.states.clear()
        return True

    def restore(self, tokens: Sequence[int], state: NDArray[np.uint8]) -> bool:
        """Holds these tokens by their saved cells; False (and empty) when the bytes do not fit this context."""
        if len(tokens) > self.n_ctx or not self.context.load_state(state, seq=self._seq):
            self._forget()
            return False
        self.tokens = list(tokens)
        self.states.clear()
        return True

    def save(self) -> NDArray[np.uint8]:
        """The cells of what is held, as bytes."""
        return self.context.save_state(seq=self._seq)

    def extend_padded(self, tokens: Sequence[int], n_rows: int, width: int) -> Logits:
        """As `extend`, widened to `width` by throw-away tokens, for a draft of all rows but the first: call `truncate`
        afterwards, which takes both back.

        Widths differ in cost (placement/cost/cost_curve.py); a wider batch can be the cheaper one. Padding is left out
        where the context has no room for it, or for more tokens than one batch.
        """
        n = len(tokens)
        if n > self.context.n_batch:
            if n_rows > 1:
                self.brace()
            return self.extend(tokens, n_rows)
        n_pad = min(width - n, self.context.max_rows - n_rows)
        if n_rows > 1 and not self._can_drop(n_rows - 1 + max(0, n_pad)):
            self.brace()
        return self._decode(tokens, n_rows, n_pad)

    def undo_s(self, n_draft: int) -> tuple[float, float] | None:
        """Seconds of keeping a state before a draft of this length, and of going back to it; None where none is needed.
        A state that is not yet measured costs nothing: the first one tells.
        """
        if self._can_drop(n_draft):
            return None
        is_braced = self.states.longest(self.n_past) == self.n_past
        return 0.0 if is_braced else self.states.save_s or 0.0, self.states.restore_s or 0.0

    def brace(self) -> None:
        """Keeps the state of now, where the context cannot go back by itself, until the next time."""
        if not self.context.can_truncate:
            self.states.brace(self.n_past)

    def _decode(self, tokens: Sequence[int], n_rows: int, n_pad: int = 0) -> Logits:
        """One decode; rows of the last n_rows real tokens. The caller drops the cells of padding by `truncate`, with
        whatever else goes: some contexts take back once only.
        """
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
            self.truncate(n_past)
            raise
        self.decode_s += time.perf_counter() - begun
        if self.on_hidden is not None:
            self.on_hidden(n_past, tokens, self.context.hidden(len(batch))[:n])
        self.tokens.extend(tokens)
        return rows[:n_rows]

    def watch_hidden(self, watcher: OnHidden) -> bool:
        """Every decode's hidden states go to this watcher; False where the context has none to show."""
        if not self.context.keep_hidden():
            return False
        self.on_hidden = watcher
        return True

    def _can_drop(self, n: int) -> bool:
        """Whether n cells of the next decode can be dropped without a state kept."""
        return self.context.can_truncate or n <= self.context.n_rollback

    def _return_to(self, n: int) -> bool:
        """Goes back to the longest state of at most n cells; without one the cache is empty."""
        found = self.states.restore(n) if n else 0
        if found:
            del self.tokens[found:]
            return found == n
        self.n_refused += n > 0 and self.context.can_truncate
        self._forget()
        return n == 0

    def _forget(self) -> None:
        self.context.clear(seq=self._seq)
        self.tokens.clear()
        self.states.clear()
