"""Drafts by the checkpoint's own next-token layer (MTP): it reads the hidden states that the target leaves behind.

The head's cell at position p is made of token p and the target's hidden state at p - 1; a draft goes on from the head's
own hidden states, whose cells give way to true ones once the target has seen the tokens. Mirrors
common_speculative_impl_draft_mtp (common/speculative.cpp). Whatever is missing (states of before a restart) costs
acceptance, never truth. `HiddenStates` serves any drafter that reads them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import ContextFullError, EngineError
from ...native.protocol import Context, Logits
from ..sampling import TokenSampler
from ..signals import Offer
from .draft import NOTHING, Draft, GoOn
from .row_reader import Made, RowReader

MTP = "mtp"
Hidden = NDArray[np.float32]
_WIDE, _N_TIMED = 4, 3
_MOST_STATES = 4096  # kept for a head that has not been asked yet: 16 MiB of 1,024 numbers each


class HiddenStates:
    """The target's hidden states by position, from where they were last let go. A watcher of `KVCache.watch_hidden`."""

    def __init__(self, n_embd: int) -> None:
        self._n_embd = n_embd
        self._start = 0
        self._rows: list[Hidden] = []

    def watch(self, n_past: int, tokens: Sequence[int], rows: Hidden) -> None:
        """Rows of the positions from n_past on; those of later positions, of rejected drafts, are forgotten."""
        del tokens
        if not self._start <= n_past <= self._start + len(self._rows):
            self._start, self._rows = n_past, []
        del self._rows[n_past - self._start :]
        self._rows.extend(rows)
        self.let_go(self._start + len(self._rows) - _MOST_STATES)

    def take(self, start: int, stop: int) -> Hidden:
        """Positions start to stop, (stop - start, n_embd); zeros where a state was never seen or let go."""
        found = np.zeros((stop - start, self._n_embd), dtype=np.float32)
        for position in range(max(start, self._start), min(stop, self._start + len(self._rows))):
            found[position - start] = self._rows[position - self._start]
        return found

    def let_go(self, stop: int) -> None:
        """Positions before stop are not needed any more."""
        n = min(max(0, stop - self._start), len(self._rows))
        del self._rows[:n]
        self._start += n


class HeadCells:
    """A head's context and the tokens its cells hold, kept in step with the history."""

    def __init__(self, context: Context, states: HiddenStates) -> None:
        self.context = context
        self._states = states
        self._tokens: list[int] = []
        self.decode_s = 0.0

    @property
    def n_past(self) -> int:
        """Cells held."""
        return len(self._tokens)

    def keep_shared(self, history: Sequence[int]) -> None:
        """Keeps the longest common prefix, short of the history's last token."""
        n = 0
        for mine, wanted in zip(self._tokens, history[:-1], strict=False):
            if mine != wanted:
                break
            n += 1
        self.truncate(n)

    def truncate(self, n: int) -> None:
        """Keeps the first n cells."""
        if n < self.n_past:
            self.context.truncate(n)
            del self._tokens[n:]

    def catch_up(self, history: Sequence[int]) -> Logits:
        """Decodes what the head lacks of the history, in chunks; the last token's logits."""
        while True:
            start = self.n_past
            stop = min(len(history), start + self.context.n_batch)
            before = self._states.take(start - 1, stop - 1)
            rows = self._decode(history[start:stop], before)
            self._states.let_go(stop - 1)
            if stop == len(history):
                return rows

    def step(self, token: int) -> Logits:
        """One draft token further, from the head's own hidden state."""
        return self._decode([token], self.context.hidden(1))

    def time_a_step(self) -> tuple[float, float]:
        """Seconds of a forward of one token, and of each further one: measured in the empty context."""
        self._decode([0], self._states.take(0, 1))
        seconds = {}
        for width in (1, _WIDE):
            times = []
            for _ in range(_N_TIMED):
                self.truncate(0)
                begun = self.decode_s
                self._decode([0] * width, self._states.take(0, width))
                times.append(self.decode_s - begun)
            seconds[width] = min(times)
        self.truncate(0)
        self.decode_s = 0.0
        return seconds[1], max(0.0, seconds[_WIDE] - seconds[1]) / (_WIDE - 1)

    def _decode(self, tokens: Sequence[int], hidden: Hidden) -> Logits:
        begun = time.perf_counter()
        try:
            rows = self.context.decode_hidden(tokens, hidden, self.n_past)
        except EngineError:
            self.context.truncate(self.n_past)
            raise
        self._tokens.extend(tokens)
        self.decode_s += time.perf_counter() - begun
        return rows


class MtpDrafter:
    """A head as drafter. reader: how tokens are read off its rows."""

    def __init__(self, cells: HeadCells, reader: RowReader, n_vocab: int) -> None:
        self.name = MTP
        self._cells = cells
        self._reader = reader
        self._n_vocab = n_vocab
        self._n_before = 0

    @property
    def decode_s(self) -> float:
        """Seconds spent in forwards so far."""
        return self._cells.decode_s

    def begin(self, history: Sequence[int]) -> None:
        """Keeps the common prefix of its cells."""
        self._cells.keep_shared(history)

    def offer(self, history: Sequence[int]) -> Offer | None:
        """Always something, until its context is full."""
        n_max = self._cells.context.n_ctx - len(history)
        return Offer(self.name, n_max, n_behind=len(history) - self._cells.n_past) if n_max > 0 else None

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """Up to `limit` tokens, each from the hidden state that the one before it left."""
        offer = self.offer(history)
        if offer is None:
            return NOTHING
        limit = min(limit, offer.n_max)
        self._n_before = len(history)
        made = Made()
        try:
            rows = self._cells.catch_up(history)
            while True:
                token = self._reader.take(rows[-1, : self._n_vocab], made, sampler, len(history) + len(made.tokens))
                if len(made.tokens) >= limit or token in sampler.eog_tokens or not go_on(made.signals[-1]):
                    break
                sampler.accept(token)
                if sampler.is_complete:
                    break
                rows = self._cells.step(token)
        except ContextFullError:
            pass
        return self._reader.draft(made, offer.n_behind)

    def accepted(self, n: int) -> None:
        """Cells of the draft were made of the head's own states: they are made again of the target's."""
        del n
        self._cells.truncate(self._n_before)

    def close(self) -> None:
        """The context belongs to the session."""
