"""Draft and target rows to a verdict: which draft tokens stand, and which token comes next.

Two exact rules. `match`: the target chooses at every position and a draft token stands when it is the same; exact for
any draft. `rejection` (Leviathan et al. 2023, Chen et al. 2023): a draft token x drawn from q stands with probability
min(1, p(x)/q(x)), else the next token is drawn from the normalised max(0, p - q). Pure numpy; knows no cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..native.protocol import Logits
from .drafters.draft import Draft
from .events import TokenLogprobs
from .prompts.prompt_scores import raw_logprobs
from .sampling import Distribution, TokenSampler, draw, hashed_uniform

LOGPROB_FLOOR = -9999.0  # stands for "impossible" where JSON has no -inf, as in OpenAI's interface

# Streams of hashed noise that keep the coin and the redraw independent of the draft's draw.
_ACCEPT_STREAM, _RESIDUAL_STREAM = 0x5EED_ACCE, 0x5EED_0DD5


@dataclass(frozen=True, slots=True)
class Verdict:
    """tokens: the accepted draft tokens, then the target's next one. n_accepted counts the draft's.

    ended: the last token ends the reply.
    """

    tokens: tuple[int, ...]
    n_accepted: int
    ended: bool = False
    logprobs: tuple[TokenLogprobs, ...] = ()


def verify(
    draft: Draft,
    rows: Logits,
    sampler: TokenSampler,
    position: int,
    *,
    accept: str = "match",
    eog_tokens: frozenset[int] = frozenset(),
    n_logprobs: int | None = None,
) -> Verdict:
    """Judges a draft of n tokens by n + 1 rows (n + 1, n_vocab); row i is the target's answer at position + i.

    `sampler.accept` is called for every token of the verdict and no other. n_logprobs asks for log-probabilities with
    so many alternatives.
    """
    by_rejection = accept == "rejection" and draft.distributions is not None and not sampler.params.greedy
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] = []
    for i, row in enumerate(rows):
        proposed = draft.tokens[i] if i < len(draft.tokens) else None
        if by_rejection and proposed is not None and draft.distributions is not None:
            p = sampler.distribution(row, position + i)
            token = _accept_or_redraw(proposed, p, draft.distributions[i], sampler.seed, position + i)
        else:
            token = sampler.choose(row, position + i)
        if n_logprobs is not None:
            logprobs.append(token_logprobs(row, token, n_logprobs, sampler, position + i))
        sampler.accept(token)
        tokens.append(token)
        stands = token == proposed
        if token in eog_tokens or not stands or sampler.is_complete:
            return Verdict(tuple(tokens), i + stands, ended=token in eog_tokens, logprobs=tuple(logprobs))
    return Verdict(tuple(tokens), len(tokens) - 1, logprobs=tuple(logprobs))


def token_logprobs(row: Logits, token: int, n_top: int, sampler: TokenSampler, position: int) -> TokenLogprobs:
    """Raw log-softmax of the row (n_vocab,) at the token and its n_top best; the token's processed log-probability."""
    processed = sampler.distribution(row, position).probability(token)
    return replace(
        raw_logprobs(row, token, n_top), processed=float(np.log(processed)) if processed > 0 else LOGPROB_FLOOR
    )


def _accept_or_redraw(proposed: int, p: Distribution, q: Distribution, seed: int, position: int) -> int:
    coin = float(hashed_uniform(seed ^ _ACCEPT_STREAM, position, np.zeros(1, dtype=np.int64))[0])
    if coin * q.probability(proposed) < p.probability(proposed):
        return proposed
    return draw(residual(p, q), seed ^ _RESIDUAL_STREAM, position)


def residual(p: Distribution, q: Distribution) -> Distribution:
    """The normalised max(0, p - q), on p's support; p itself where rounding leaves nothing."""
    order = np.argsort(q.ids)
    at = np.minimum(np.searchsorted(q.ids[order], p.ids), q.ids.size - 1)
    found = q.ids[order][at] == p.ids
    left = np.maximum(p.probs - np.where(found, q.probs[order][at], 0.0), 0.0)
    total = left.sum()
    return Distribution(p.ids, left / total) if total > 0 else p
