"""A redo: an earlier reply put before a more precise sibling as one long draft; where it departs, the usual drafter
takes over. A drafter and a controller around the usual ones, so that the loop stays the one loop.

Knows nothing of text; the verdicts are `verify.py`'s. `agreement` asks the same question without writing a reply.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..caches.kv_cache import KVCache
from ..control.draft_length import Controller
from ..sampling import TokenSampler
from ..signals import Choice, Offer, Signals
from ..stats import RoundRecord
from .draft import NOTHING, Draft, Drafter, GoOn

ORIGIN = "agreed"


def agreement(cache: KVCache, prompt_tokens: Sequence[int], reply_tokens: Sequence[int]) -> int:
    """How many leading tokens of the reply are the model's own greedy choice after the prompt.

    Decodes in chunks of at most max_rows and stops at the first departure; the cache is left holding the prompt and
    the tokens agreed with, without the last of them. Raises what KVCache.extend raises.
    """
    row = cache.hold(prompt_tokens)[-1:]
    n_agreed, chunk = 0, cache.context.max_rows
    while n_agreed < len(reply_tokens):
        if int(np.argmax(row[-1])) != reply_tokens[n_agreed]:
            break
        ahead = reply_tokens[n_agreed : n_agreed + chunk]
        row = cache.extend(ahead, len(ahead))
        choices = np.argmax(row, axis=1)[:-1]
        differs = np.flatnonzero(choices != np.asarray(ahead[1:]))
        n_agreed += 1 + (int(differs[0]) if differs.size else len(ahead) - 1)
        if differs.size:
            break
    cache.truncate(len(prompt_tokens) + max(0, n_agreed - 1))
    return n_agreed


class RedoDrafter:
    """Proposes the earlier reply for as long as the history follows it, then what `inner` proposes."""

    def __init__(self, reply: Sequence[int], inner: Drafter) -> None:
        self.name = inner.name
        self._reply = tuple(reply)
        self._inner = inner
        self._n_prompt = 0
        self._on_track = True
        self._is_awake = False
        self._inner_drafted = False

    @property
    def on_track(self) -> bool:
        """Whether the earlier reply still has something to propose."""
        return self._on_track

    @property
    def decode_s(self) -> float:
        """The inner drafter's."""
        return self._inner.decode_s

    def begin(self, history: Sequence[int]) -> None:
        """history is the prompt and the target's first token."""
        self._n_prompt = len(history) - 1
        self._on_track, self._is_awake = bool(self._reply), False
        self._follow(history)

    def offer(self, history: Sequence[int]) -> Offer | None:
        """The inner drafter's; while on track the whole rest of the reply is proposed, whoever asks."""
        return self._inner.offer(history)

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """The next tokens of the earlier reply, or the inner drafter's; nothing in the round between the two."""
        was_on_track = self._on_track
        self._follow(history)
        self._inner_drafted = not was_on_track
        if self._inner_drafted:
            return self._inner.propose(history, limit, go_on, sampler)
        if not self._on_track:
            return NOTHING  # the limit of this round was meant for the earlier reply
        at = len(history) - self._n_prompt
        tokens = self._reply[at : at + limit]
        return Draft(tokens, (ORIGIN,) * len(tokens))

    def accepted(self, n: int) -> None:
        """The inner drafter hears of its own drafts only."""
        if self._inner_drafted:
            self._inner.accepted(n)

    def close(self) -> None:
        """Frees what the inner drafter owns."""
        self._inner.close()

    def _follow(self, history: Sequence[int]) -> None:
        """Leaves the track where the history departed from it or it ended, and wakes the inner drafter."""
        said = tuple(history[self._n_prompt :])
        if self._on_track and (said != self._reply[: len(said)] or len(said) >= len(self._reply)):
            self._on_track = False
        if not self._on_track and not self._is_awake:
            self._is_awake = True
            self._inner.begin(history)


class RedoController:
    """As wide as the context allows while the earlier reply is judged; then the inner controller decides."""

    def __init__(self, drafter: RedoDrafter, inner: Controller, widest: int) -> None:
        self._drafter, self._inner, self._widest = drafter, inner, widest
        self._judging = True

    def limit(self) -> int:
        """Draft tokens for the round about to start."""
        self._judging = self._drafter.on_track
        return self._widest if self._judging else self._inner.limit()

    def choose(self, offers: Sequence[Offer], limit: int) -> Choice | None:
        """The inner controller's choice: it is asked about the inner drafters only."""
        return self._inner.choose(offers, limit)

    def observe(self, record: RoundRecord) -> None:
        """The inner controller learns from its own rounds only."""
        if not self._judging:
            self._inner.observe(record)

    def should_continue(self, signals: Signals) -> bool:
        """The inner controller's answer: it is asked about the inner drafter's tokens only."""
        return self._inner.should_continue(signals)

    @property
    def reason(self) -> str:
        """The inner controller's reason."""
        return self._inner.reason

    @property
    def speedup_estimate(self) -> float | None:
        """The inner controller's, of the rounds after the earlier reply."""
        return self._inner.speedup_estimate
