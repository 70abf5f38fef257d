"""The plan behind a runtime: what the user says wins, the rest is the plan's, and failures give way step by step."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from runtime_rig import drained, fake_plan, fake_runtime

from edge_specquant.errors import PlanError
from edge_specquant.gguf.family.family import Family
from edge_specquant.placement.plan.plan_types import Decision, PlacementPlan, Wish
from edge_specquant.placement.plan.smaller_plan import MAX_RETRIES
from edge_specquant.request import Request
from edge_specquant.runtime.models.default_siblings import choose_siblings
from edge_specquant.runtime.models.under_plan import Planned, planner_of, wished_draft
from edge_specquant.runtime.options import EngineOptions


def planned_of(family: Family, options: EngineOptions | None = None) -> Planned:
    chosen = options or EngineOptions()
    return Planned(chosen, planner_of(family, chosen))


def by(*plans: PlacementPlan) -> Planned:
    """Plans made by hand, by target; the first is the one without a wish."""
    known = {plan.target.variant: plan for plan in plans}

    def make(wish: Wish) -> PlacementPlan:
        plan = known.get(wish.target) if wish.target else plans[0]
        if plan is None:
            raise PlanError("nothing fits")
        return plan

    return Planned(EngineOptions(), make)


def test_without_a_gpu_all_stays_on_the_cpu(tiny_family: Family) -> None:
    planned = planned_of(tiny_family)
    assert planned.plan is not None
    assert {planned.layers(name)[0] for name in (*tiny_family.variants, "unknown")} == {0}
    assert planned.notices == []


def test_what_the_user_says_wins(tiny_family: Family) -> None:
    said = EngineOptions(n_gpu_layers=7, n_ctx=300, kv_type="q8_0", use_mmap=False, use_mlock=True)
    planned = planned_of(tiny_family, said)
    assert planned.layers("f16") == (7, ()) and not planned.give_way("f16")
    assert planned.n_ctx(64) == 300 and planned.kv_types == ("q8_0", "q8_0")
    assert not planned.use_mmap and planned.use_mlock


def test_what_nobody_says_is_the_plans() -> None:
    planned = by(fake_plan("q8", None, n_ctx=2048, type_k="q8_0", type_v="q8_0", use_mmap=False, n_budget=9000))
    assert planned.n_ctx(32768) == 2048 and planned.kv_types == ("q8_0", "q8_0")
    assert not planned.use_mmap and planned.n_budget == 9000
    assert planned.n_bytes("q8") == 1100 and planned.n_bytes("q4") is None


def test_a_plan_with_layers_away_is_what_is_loaded() -> None:
    plan = fake_plan("f16", None)
    planned = by(replace(plan, target=replace(plan.target, n_gpu_layers=-1, tensor_split=(0.5, 0.5))))
    assert planned.layers("f16") == (-1, (0.5, 0.5))


def test_each_retry_takes_layers_off_the_gpu_until_none_is_left() -> None:
    plan = fake_plan("f16", None, n_ctx=8192)
    split = plan.target.footprint
    away = replace(plan.target, n_gpu_layers=-1, footprint=replace(split, devices=(split.host,), n_layers_on=(24,)))
    planned = by(replace(plan, target=away))
    found = []
    while planned.give_way("f16"):
        found.append(planned.layers("f16")[0])
    assert 0 < len(found) <= MAX_RETRIES and found[-1] == 0
    assert all(later < earlier for earlier, later in itertools.pairwise([24, *found]))
    assert len(planned.notices) == len(found)


def test_the_cpu_has_no_layers_to_give_up(tiny_family: Family) -> None:
    assert not planned_of(tiny_family).give_way("f16")


def test_a_family_that_cannot_be_planned_is_one_notice(tiny_family: Family) -> None:
    planned = planned_of(tiny_family, EngineOptions(target="q7"))
    assert planned.layers("f16") == (0, ()) and planned.n_ctx(1024) == 1024
    assert planned.plan is None and len(planned.notices) == 1


def test_contexts_give_way_draft_first_then_length_three_times_at_most() -> None:
    planned = by(fake_plan("f16", "q4", n_ctx=8192))
    seen = []
    while planned.shrink("f16"):
        assert planned.plan is not None
        seen.append((planned.plan.draft is not None, planned.plan.n_ctx))
    assert seen == [(False, 8192), (False, 4096), (False, 2048)]
    assert len(planned.notices) == MAX_RETRIES and "2048 tokens" in planned.notices[-1]
    again = planned.plan_for(None)
    assert again is not None and again.draft is None  # later replies plan with what is left


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (EngineOptions(n_ctx=8192), [(None, 8192)]),
        (EngineOptions(draft="q4"), [(None, 4096), (None, 2048), (None, 1024)]),
        (EngineOptions(n_ctx=8192, draft="q4"), []),
    ],
)
def test_what_the_user_said_is_never_given_up(options: EngineOptions, left: list[tuple[None, int]]) -> None:
    planned = Planned(options, lambda wish: fake_plan("f16", "q4", n_ctx=wish.n_ctx or 8192))
    seen = []
    while planned.shrink("f16"):
        assert planned.plan is not None
        seen.append((None, planned.n_ctx(None)))
    assert [n for _, n in seen][: len(left)] == [n for _, n in left]
    assert all(planned.n_ctx(None) == options.n_ctx for _ in seen if options.n_ctx)
    assert bool(seen) == bool(left)


def test_the_plan_in_force_changes_only_for_a_target_it_has_no_place_for() -> None:
    first, second = fake_plan("q4", None, "q8", n_ctx=8192), fake_plan("f16", None, n_ctx=1024)
    planned = by(first, second)
    told: list[PlacementPlan] = []
    planned.on_change = told.append
    for target, n_ctx in (("q4", 8192), ("q8", 8192), ("f16", 1024), ("f16", 1024), ("q4", 8192)):
        planned.follow(target, None)
        assert planned.n_ctx(None) == n_ctx
    assert told == [first, second, first]


def test_the_first_reply_that_names_a_target_gets_a_plan_of_its_own() -> None:
    planned = by(fake_plan("q4", None, "f16", n_ctx=8192), fake_plan("f16", "q4", n_ctx=2048))
    planned.follow("f16", None)
    assert planned.n_ctx(None) == 2048
    default = planned.plan_for(None)
    assert default is not None and default.target.variant == "q4"  # who answers when nobody is named


def test_the_plan_chooses_who_answers_and_who_drafts(tiny_family: Family) -> None:
    options, nobody = EngineOptions(), Request(prompt="x")
    planned = by(fake_plan("q8", None, "f16", "q4"), fake_plan("f16", "q4"))
    assert choose_siblings(tiny_family, options, nobody, planned.plan_for) == ("q8", "lookup")
    assert choose_siblings(tiny_family, options, Request(prompt="x", target="f16"), planned.plan_for) == (
        "f16",
        "lookup+q4",
    )
    said = EngineOptions(target="q4", draft="q8")
    assert choose_siblings(tiny_family, said, nobody, planned.plan_for) == ("q4", "q8")
    unfit = choose_siblings(tiny_family, options, Request(prompt="x", target="q4"), planned.plan_for)
    assert unfit == ("q4", "lookup")  # nothing can be planned for it, but it was asked for


def test_a_losing_pair_is_refused_in_words() -> None:
    reason = "q8 with the draft q4 would be slower than q8 alone here"
    refused = Decision("draft", "none", reason, "q4 at 9 tok/s against 10 tok/s")
    small = Decision("draft", "none", "no smaller sibling fits beside the target")
    planned = by(fake_plan("q8", None, reasons=(refused,)), fake_plan("q4", None, reasons=(small,)))
    assert planned.refusal("q8") == reason
    assert planned.refusal("q4") == planned.refusal("f16") == ""
    runtime, _ = fake_runtime(
        EngineOptions(calibrate=False), make_plan=lambda _: fake_plan("f16", None, reasons=(refused,))
    )
    with runtime:
        drained(runtime.generate(Request(prompt="x", max_tokens=2)))
        assert runtime.notices == [reason]


def test_threads_draft_and_parallel_replies_are_wished_for() -> None:
    wishes: list[Wish] = []

    def make(wish: Wish) -> PlacementPlan:
        wishes.append(wish)
        return fake_plan("f16", "q4")

    Planned(EngineOptions(draft="lookup+q4", n_parallel=3, kv_type="f32", n_ctx=99), make).plan_for(None)
    assert wishes == [Wish(n_ctx=99, draft="q4", kv_type="f32", n_parallel=3)]
    assert [wished_draft(draft) for draft in (None, "lookup", "none", "lookup+q4", "q8")] == [
        None,
        "none",
        "none",
        "q4",
        "q8",
    ]
