"""Both accept rules give the target's distribution, whatever the draft (case A5), by chi-square over real draws."""

from __future__ import annotations

import numpy as np
import pytest
from engine_rig import chi_square_ok

from edge_specquant.engine.drafters.draft import Draft
from edge_specquant.engine.drafters.row_reader import _DRAFT_STREAM
from edge_specquant.engine.sampling import Distribution, TokenSampler, draw
from edge_specquant.engine.verify import residual, verify
from edge_specquant.params import SamplingParams

N = 8
P = np.array([0.30, 0.22, 0.18, 0.12, 0.08, 0.06, 0.04, 0.0])
Q = np.array([0.05, 0.40, 0.10, 0.05, 0.20, 0.0, 0.10, 0.10])
PURE = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)


def logits(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probs).astype(np.float32)[None, :]


def first_token(seed: int, accept: str, q: np.ndarray) -> int:
    ids = np.arange(N, dtype=np.int32)
    sampler = TokenSampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed), N)
    distribution = Distribution(ids, q)
    proposed = draw(distribution, seed ^ (_DRAFT_STREAM if accept == "rejection" else 0), 5)
    draft = Draft((proposed,), ("q4",), (), (distribution,))
    rows = np.concatenate([logits(P), logits(P)])
    return verify(draft, rows, sampler, 5, accept=accept).tokens[0]


@pytest.mark.parametrize("accept", ["match", "rejection"])
@pytest.mark.parametrize("q", [Q, P, np.eye(N)[3], np.full(N, 1 / N)], ids=["other", "same", "certain", "flat"])
def test_the_distribution_is_the_targets(accept: str, q: np.ndarray) -> None:
    n = 20_000 if q is Q else 4_000
    counts = np.bincount([first_token(seed, accept, q) for seed in range(n)], minlength=N)
    assert chi_square_ok(counts, P)


def test_rejection_accepts_as_often_as_theory_says() -> None:
    """The acceptance rate of speculative sampling is sum(min(p, q))."""
    kept = 0
    for seed in range(4000):
        sampler = TokenSampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed), N)
        q = Distribution(np.arange(N, dtype=np.int32), Q)
        draft = Draft((draw(q, seed ^ _DRAFT_STREAM, 5),), ("q4",), (), (q,))
        kept += verify(draft, np.concatenate([logits(P)] * 2), sampler, 5, accept="rejection").n_accepted
    assert kept / 4000 == pytest.approx(np.minimum(P, Q).sum(), abs=0.03)


def test_match_with_shared_noise_accepts_what_the_coupling_allows() -> None:
    """A draft that draws with the target's noise agrees far more often than an independent one (sum p*q)."""
    agree = 0
    for seed in range(4000):
        ids = np.arange(N, dtype=np.int32)
        agree += draw(Distribution(ids, P), seed, 5) == draw(Distribution(ids, Q), seed, 5)
    assert agree / 4000 > float((P * Q).sum()) * 1.5


def test_residual_is_the_normalised_excess_whatever_the_order() -> None:
    ids = np.array([4, 2, 7], dtype=np.int32)
    p = Distribution(ids, np.array([0.5, 0.3, 0.2]))
    q = Distribution(np.array([9, 7, 4], dtype=np.int32), np.array([0.1, 0.5, 0.4]))
    left = residual(p, q)
    assert dict(zip(left.ids.tolist(), left.probs.tolist(), strict=True)) == pytest.approx({4: 0.25, 2: 0.75, 7: 0.0})
    assert residual(p, p) is p


def test_greedy_stops_at_the_first_difference_and_at_an_end() -> None:
    sampler = TokenSampler(SamplingParams(temperature=0), N)
    rows = np.stack([np.eye(N, dtype=np.float32)[t] for t in (1, 2, 3, 4)])
    assert verify(Draft((1, 2, 5)), rows, sampler, 0).tokens == (1, 2, 3)
    assert verify(Draft((1, 2, 3)), rows, sampler, 0).tokens == (1, 2, 3, 4)
    ended = verify(Draft((1, 2, 3)), rows, sampler, 0, eog_tokens=frozenset({2}))
    assert ended.tokens == (1, 2) and ended.ended and ended.n_accepted == 2
