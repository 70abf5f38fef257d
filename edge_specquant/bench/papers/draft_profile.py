"""What a draft would have proposed at every position of a target's greedy reply: enough to replay any policy exactly.

Greedy speculation follows the target's reply whatever is drafted, so at each position the matching length of one long
draft tells what every shorter draft would have had accepted. Takes two KV caches and a prompt, gives Steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...engine.caches.kv_cache import KVCache
from ...engine.signals import Signals
from ..evaluation.scoring import log_softmax

LONGEST = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One position: draft tokens that match the reply, and each draft token's probability and entropy (nats)."""

    n_match: int
    confidence: tuple[float, ...]
    entropy: tuple[float, ...]

    def signals(self, source: str) -> tuple[Signals, ...]:
        """As a drafter gives them."""
        both = zip(self.confidence, self.entropy, strict=True)
        return tuple(Signals(i, source, confidence, entropy) for i, (confidence, entropy) in enumerate(both))


@dataclass(frozen=True, slots=True)
class Profile:
    """One reply. steps[i]: what is drafted when i tokens of it are there, so one for each token but the first."""

    case: str
    prompt_class: str
    target: str
    draft: str
    size_ratio: float
    steps: tuple[Step, ...]


def greedy_reply(cache: KVCache, prompt: Sequence[int], n_tokens: int, eog: frozenset[int]) -> list[int]:
    """The target's own reply, at most n_tokens, an end token included."""
    rows = cache.hold(prompt)
    reply = [int(rows[-1].argmax())]
    while len(reply) < n_tokens and reply[-1] not in eog:
        reply.append(int(cache.extend(reply[-1:])[-1].argmax()))
    return reply


def profile_steps(cache: KVCache, prompt: Sequence[int], reply: Sequence[int], longest: int = LONGEST) -> list[Step]:
    """Drafts `longest` tokens after every prefix of the reply. cache is the draft's."""
    steps = []
    for n in range(1, len(reply)):
        row = cache.hold([*prompt, *reply[:n]])
        steps.append(_step(cache, row[-1:], reply[n:], longest))
        cache.truncate(len(prompt) + n)
    return steps


def _step(
    cache: KVCache, row: np.ndarray[tuple[int, ...], np.dtype[np.float32]], rest: Sequence[int], longest: int
) -> Step:
    n_match, matching = 0, True
    confidence: list[float] = []
    entropy: list[float] = []
    for i in range(longest):
        logs = log_softmax(row)[0]
        token = int(logs.argmax())
        confidence.append(float(np.exp(logs[token])))
        entropy.append(float(-(np.exp(logs) * logs).sum()))
        matching = matching and i < len(rest) and rest[i] == token
        n_match += matching
        if i + 1 < longest:
            row = cache.extend([token])[-1:]
    return Step(n_match, tuple(confidence), tuple(entropy))
