"""Routes: always possible on what the plan holds, always explained, and flipped by what they say would flip them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.errors import PlanError, UsageError
from edge_specquant.routing.features.features import Features, extract
from edge_specquant.routing.features.sample import estimate_tokens
from edge_specquant.routing.policy.flip import nearest_flip
from edge_specquant.routing.policy.override import Override
from edge_specquant.routing.policy.policy import Policy, shipped_policies
from edge_specquant.routing.policy.score import score_of
from edge_specquant.routing.policy.signals import SIGNALS
from edge_specquant.routing.records.prompts import Prompt
from edge_specquant.routing.router import route
from edge_specquant.routing.tier_models import Available, precision

VARIANTS = ("q4", "q8", "f16")
MANY = ("q2", "q3", "q4", "q5", "q6", "q8", "bf16", "f16")
share = st.floats(0, 1)
some_features = st.builds(
    Features,
    n_tokens=st.integers(0, 5000),
    n_words=st.integers(0, 4000),
    sentence_words=st.floats(0, 80),
    depth=st.floats(0, 30),
    clauses=st.floats(1, 20),
    entity_density=share,
    code_share=share,
    digit_share=share,
    math_share=share,
    n_questions=st.integers(0, 20),
    n_demands=st.integers(0, 20),
    requested_tokens=st.none() | st.integers(0, 8192),
    history_turns=st.integers(0, 100),
    language=st.sampled_from(["en", "de", "unknown", "zxx"]),
    kind=st.sampled_from(["prose", "code", "symbols", "empty"]),
    estimator=st.just("rules"),
    sampled=st.booleans(),
)
policies = st.sampled_from([Policy.load(name) for name in shipped_policies()])
pools = st.lists(st.sampled_from(MANY), min_size=1, unique=True).map(tuple)


@settings(max_examples=300, deadline=None)
@given(some_features, policies, pools)
def test_every_route_uses_only_what_there_is(features: Features, policy: Policy, pool: tuple[str, ...]) -> None:
    found = route(features, policy, available=pool)
    wanted = policy.tiers[found.tier]
    assert found.target in pool
    siblings = [part for part in found.draft.split("+") if part not in ("lookup", "none")]
    assert set(siblings) <= set(pool)
    assert all(precision(part) < precision(found.target) for part in siblings)
    if (found.target, found.draft) != (wanted.target, wanted.draft):
        assert len(found.reasons) > 1


@settings(max_examples=200, deadline=None)
@given(some_features, pools, st.data())
def test_the_memory_policy_never_asks_for_a_model_that_is_not_loaded(
    features: Features, pool: tuple[str, ...], data: st.DataObject
) -> None:
    residents = tuple(data.draw(st.lists(st.sampled_from(pool), min_size=1, unique=True)))
    found = route(features, Policy.load("memory"), available=Available(pool, residents))
    assert {found.target, *found.draft.split("+")} <= {*residents, "lookup", "none"}


@settings(max_examples=200, deadline=None)
@given(some_features, policies, pools)
def test_one_model_at_a_time_means_no_sibling_drafts(features: Features, policy: Policy, pool: tuple[str, ...]) -> None:
    assert route(features, policy, available=Available(pool, max_residents=1)).draft in ("lookup", "none")


@settings(max_examples=300, deadline=None)
@given(some_features, policies)
def test_the_nearest_flip_flips(features: Features, policy: Policy) -> None:
    flip = nearest_flip(features, policy)
    if flip is None:
        return
    change: dict[str, object] = {flip.field: flip.value}
    there = replace(features, **change)  # type: ignore[arg-type]
    assert policy.tier_of(score_of(there, policy)) == flip.tier != policy.tier_of(score_of(features, policy))
    assert flip.tier in flip.text


@settings(max_examples=200, deadline=None)
@given(some_features, policies, st.sampled_from(sorted(SIGNALS)), st.floats(0, 1))
def test_more_of_a_feature_is_never_an_easier_tier(features: Features, policy: Policy, name: str, share: float) -> None:
    signal = SIGNALS[name]
    value = signal.feature_at(share)
    change: dict[str, object] = {signal.field: round(value) if signal.whole else value}
    other = replace(features, **change)  # type: ignore[arg-type]
    less, more = sorted((features, other), key=signal.value)
    assert score_of(less, policy) <= score_of(more, policy) + 1e-12


@given(some_features, policies)
def test_pure(features: Features, policy: Policy) -> None:
    assert route(features, policy, available=VARIANTS) == route(features, policy, available=iter(VARIANTS))


def test_the_paper_as_published(make_features: Callable[..., Features]) -> None:
    paper = Policy.load("paper")
    low, medium, high = (
        route(make_features(n_tokens=n, depth=d), paper, available=VARIANTS)
        for n, d in ((4, 1.0), (60, 5.0), (900, 11.0))
    )
    assert [(r.tier, r.target, r.draft) for r in (low, medium, high)] == [
        ("low", "f16", "q4"),
        ("medium", "f16", "q8"),
        ("high", "f16", "none"),
    ]


def test_a_missing_target_is_replaced_upwards(make_features: Callable[..., Features]) -> None:
    found = route(make_features(n_tokens=2, depth=0.0), Policy.load("fast"), available=["q8", "f16"])
    assert (found.tier, found.target) == ("low", "q8")
    assert "q4 is not in the plan" in " ".join(found.reasons)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("high", {"tier": "high", "target": "f16"}),
        ("q8", {"target": "q8"}),
        ("f16/none", {"target": "f16", "draft": "none"}),
        ("f16/lookup+q4/fixed:4", {"target": "f16", "draft": "lookup+q4", "controller": "fixed:4"}),
        ("low//entropy", {"tier": "low", "controller": "entropy"}),
        ("/lookup", {"draft": "lookup"}),
    ],
)
def test_the_hand_wins(make_features: Callable[..., Features], text: str, expected: dict[str, str]) -> None:
    found = route(make_features(), Policy.load("fast"), available=VARIANTS, override=text)
    assert {name: getattr(found, name) for name in expected} == expected
    assert any("by hand" in reason for reason in found.reasons) or "controller" in expected


@pytest.mark.parametrize("text", ["", "//", "q8/q4/goodput/more", "q8/q4/fast", "q 8", "high/../x"])
def test_a_wrong_override_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"goodput|write a tier"):
        Override.parse(text)


@pytest.mark.parametrize("override", ["q2", "f16/q2", "f16/lookup+q2"])
def test_an_absent_variant_by_hand_is_an_error_not_a_substitute(
    make_features: Callable[..., Features], override: str
) -> None:
    with pytest.raises(UsageError, match=r"no 'q2'.*q4, q8, f16"):
        route(make_features(), Policy.load("fast"), available=VARIANTS, override=override)


def test_an_empty_plan_is_an_error(make_features: Callable[..., Features]) -> None:
    with pytest.raises(PlanError):
        route(make_features(), Policy.load("fast"), available=[])


@pytest.mark.parametrize("policy", shipped_policies())
def test_hard_prompts_score_above_their_easy_twins(prompts: list[Prompt], policy: str) -> None:
    chosen = Policy.load(policy)
    scores = {p.id: score_of(extract(p.text, n_tokens=estimate_tokens(p.text)), chosen) for p in prompts}
    easier = [scores[f"{group}e"] < scores[f"{group}h"] for group in {p.group for p in prompts}]
    assert sum(easier) / len(easier) > 0.92
