"""Replays of draft lengths: the books balance, tokens a step favour long drafts, no one beats the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from edge_specquant.bench.papers.draft_profile import LONGEST, Profile, Step, greedy_reply, profile_steps
from edge_specquant.bench.papers.speckv import policy_rows
from edge_specquant.bench.papers.speckv_policies import (
    GAMMAS,
    cross_validated,
    fixed,
    oracle,
    replay,
    replay_goodput,
    speckv_policy,
)
from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.native.fake import FakeModel, hashed
from edge_specquant.native.protocol import ContextParams
from edge_specquant.placement.cost.cost_curve import CostCurve

TARGET = CostCurve(tuple(range(1, 10)), (0,), (tuple(0.1 + 0.002 * n for n in range(9)),))
DRAFT = CostCurve((1, 2), (0,), ((0.01, 0.011),))
DEAR = CostCurve((1, 2), (0,), ((0.2, 0.21),))
COSTS = {"f16": TARGET, "q4": DRAFT}


def _profile(case: str, seed: int, n: int = 120) -> Profile:
    """Steps whose confidence tells how far the draft matches, as a real draft's does."""
    rng = np.random.default_rng(seed)
    steps = []
    for at in range(n):
        is_easy = rng.random() < 0.6
        n_match = int(min(LONGEST, n - at - 1, rng.geometric(0.1 if is_easy else 0.7) - 1))
        level = 0.95 if is_easy else 0.4
        confidence = tuple(float(np.clip(level + rng.normal(0, 0.03), 0.01, 1)) for _ in range(LONGEST))
        steps.append(Step(n_match, confidence, tuple(-np.log(each) * 2 for each in confidence)))
    return Profile(case, "story" if seed % 2 else "code", "f16", "q4", 0.28, tuple(steps))


PROFILES = [_profile(f"c{seed}", seed) for seed in range(6)]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda one: one.case)
def test_the_books_balance(profile: Profile) -> None:
    for n in (0, *GAMMAS):
        found = replay(profile, fixed(n), TARGET, DRAFT)
        assert found.n_tokens == found.n_accepted + found.n_steps >= len(profile.steps)
        assert found.n_drafted == n * found.n_steps
        assert found.seconds == pytest.approx(
            found.n_steps * (n * DRAFT.decode_s(1) + TARGET.decode_s(TARGET.cheapest_width(n + 1)))
        )
    plain = replay(profile, fixed(0), TARGET, DRAFT)
    assert plain.tokens_per_step == 1 and plain.tokens_per_s == pytest.approx(1 / TARGET.decode_s(1))


def test_the_published_measure_favours_long_drafts() -> None:
    means = []
    for n in (0, *GAMMAS):
        replays = [replay(profile, fixed(n), TARGET, DRAFT) for profile in PROFILES]
        means.append(np.mean([one.tokens_per_step for one in replays]))
    assert means == sorted(means)


def test_the_oracle_beats_every_fixed_length() -> None:
    for draft in (DRAFT, DEAR):
        totals = []
        for policy in (oracle(TARGET, draft), *(fixed(n) for n in (0, *GAMMAS))):
            replays = [replay(profile, policy, TARGET, draft) for profile in PROFILES]
            totals.append(sum(one.n_tokens for one in replays) / sum(one.seconds for one in replays))
        assert totals[0] >= max(totals[1:]) * 0.98


def test_goodput_never_loses_and_gains_where_drafts_are_cheap() -> None:
    alone = 1 / TARGET.decode_s(1)
    cheap = [replay_goodput(profile, TARGET, DRAFT).tokens_per_s / alone for profile in PROFILES]
    dear = [replay_goodput(profile, TARGET, DEAR).tokens_per_s / alone for profile in PROFILES]
    assert min(dear) >= 0.97 and np.mean(cheap) > 1.3


def test_speckv_learns_that_confidence_tells() -> None:
    network = cross_validated(PROFILES)["c0"]
    policy = speckv_policy(network, lambda acceptance, gamma: acceptance * gamma + 1)
    chosen = {True: [], False: []}  # type: ignore[var-annotated]
    for step in PROFILES[0].steps:
        chosen[step.confidence[0] > 0.7].append(policy(PROFILES[0], step))
    assert np.mean(chosen[True]) > np.mean(chosen[False]) or set(chosen[True]) == {8}


def test_the_table_has_every_policy_with_intervals() -> None:
    rows, decide_s = policy_rows(PROFILES, COSTS)
    names = [row.name for row in rows]
    assert {"Fixed-2", "Fixed-4 (default)", "Fixed-6", "Fixed-8", "SpecKV", "no draft"} <= set(names)
    for row in rows:
        assert row.tokens_per_step and row.tokens_per_step.low is not None
        assert row.speedup and row.speedup.value > 0
    assert decide_s > 0


def test_a_model_that_drafts_for_itself_matches_everywhere() -> None:
    def cache() -> KVCache:
        return KVCache(FakeModel(hashed(5)).context(ContextParams(n_ctx=256, n_batch=64, max_rows=16)))

    prompt = [1, 2, 3]
    reply = greedy_reply(cache(), prompt, 20, frozenset())
    steps = profile_steps(cache(), prompt, reply)
    assert len(reply) == 20 and len(steps) == 19
    assert [step.n_match for step in steps] == [min(LONGEST, 19 - i) for i in range(19)]
    assert all(0 < c <= 1 for step in steps for c in step.confidence)
    assert all(e >= 0 for step in steps for e in step.entropy)
