"""Helpers of the engine tests: jobs on fake or real models, replies as plain data, and a chi-square test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.engine.control.draft_length import Controller, Fixed
from edge_specquant.engine.drafters.draft import Drafter, NoDrafter
from edge_specquant.engine.drafters.model_drafter import ModelDrafter
from edge_specquant.engine.sampling import TokenSampler
from edge_specquant.engine.stats import SpeculationStats
from edge_specquant.engine.stream import Job, TokenEvent, stream
from edge_specquant.native.protocol import ContextParams, Model
from edge_specquant.params import SamplingParams

GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True)
class Reply:
    """A finished reply."""

    text: str
    tokens: tuple[int, ...]
    origins: tuple[str | None, ...]
    finish_reason: str | None
    stats: SpeculationStats
    events: tuple[TokenEvent, ...]


def collect(events: Iterator[TokenEvent]) -> Reply:
    """Runs a stream to its end and checks its shape: exactly one last event, the only one without a token."""
    seen = tuple(events)
    assert seen[-1].finish_reason is not None and seen[-1].stats is not None and seen[-1].token_id is None
    assert all(e.finish_reason is None and e.token_id is not None for e in seen[:-1])
    return Reply(
        "".join(e.text for e in seen),
        tuple(e.token_id for e in seen[:-1] if e.token_id is not None),
        tuple(e.origin for e in seen[:-1]),
        seen[-1].finish_reason,
        seen[-1].stats,
        seen,
    )


def newer_half(history: Sequence[int], n_prompt: int, n_ctx: int) -> tuple[list[int], int]:
    """Forgets the older half of what follows the first eight tokens."""
    del n_prompt, n_ctx
    return [*history[:8], *history[8 + (len(history) - 8) // 2 :]], 8


class Rig:
    """A target, perhaps a draft model, and replies from them."""

    def __init__(self, target: Model, draft: Model | None = None, **context: int) -> None:
        self.target_model = target
        params = ContextParams(**({"n_ctx": 512, "n_batch": 64, "max_rows": 49, "n_threads": 1} | context))
        self.target = KVCache(target.context(params))
        self.draft = KVCache(draft.context(params)) if draft else None

    def job(
        self,
        prompt: Sequence[int],
        *,
        n_draft: int = 0,
        drafter: Drafter | None = None,
        controller: Controller | None = None,
        sampling: SamplingParams = GREEDY,
        accept: str = "match",
        min_tokens: int = 0,
        **fields: object,
    ) -> Job:
        """A job; a drafter given wins over the rig's own."""
        vocab = self.target_model.vocab
        n_vocab = self.target.context.n_vocab
        if drafter is None and self.draft is not None and n_draft:
            drafter = ModelDrafter(
                "q4", self.draft, n_vocab=n_vocab, target=self.target, wants_distributions=accept == "rejection"
            )
        sampler = TokenSampler(sampling, n_vocab, eog_tokens=vocab.eog_tokens, min_tokens=min_tokens)
        return Job(
            prompt=prompt,
            target=self.target,
            drafter=drafter or NoDrafter(),
            controller=controller or Fixed(n_draft),
            sampler=sampler,
            vocab=vocab,
            accept=accept,
            **fields,  # type: ignore[arg-type]
        )

    def reply(self, prompt: Sequence[int], **fields: object) -> Reply:
        """One finished reply."""
        return collect(stream(self.job(prompt, **fields)))  # type: ignore[arg-type]

    def close(self) -> None:
        for cache in (self.target, self.draft):
            if cache is not None:
                cache.context.close()


def chi_square_ok(counts: np.ndarray, probs: np.ndarray) -> bool:
    """Below the 1e-4 quantile of the chi-square distribution (Wilson-Hilferty)."""
    kept = probs > 0
    assert counts[~kept].sum() == 0
    expected = probs[kept] * counts.sum()
    statistic = float(((counts[kept] - expected) ** 2 / expected).sum())
    freedom = int(kept.sum()) - 1
    bound = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic < bound
