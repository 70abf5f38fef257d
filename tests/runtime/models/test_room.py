"""Memory that is short: siblings leave, oldest first, contexts shrink, the draft goes first; all of it is said."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from runtime_rig import GREEDY, FakeEngine, drained, fake_plan, fake_runtime, greedy_fake

from edge_specquant.errors import ContextError
from edge_specquant.native.fake import FakeContext, FakeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.params import SpeculationParams
from edge_specquant.placement.machine.memory import MemoryProfile
from edge_specquant.placement.plan.plan_types import PlacementPlan, Wish
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.models.make_room import Relief, over_budget

N = 6
NAMES = ("f16", "q8", "q4")
PLAIN = SpeculationParams(draft="none")


def say(runtime: Runtime, target: str | None = None, speculation: SpeculationParams | None = None) -> list[str]:
    """One greedy reply, proven; gives the notes on the way."""
    request = Request(
        prompt="some words",
        target=target,
        sampling=GREEDY,
        max_tokens=N,
        speculation=speculation or SpeculationParams(),
    )
    events = list(runtime.generate(request))
    ids = [event.token_id for event in events if event.token_id is not None]
    if target in (None, "f16"):
        assert ids == greedy_fake(runtime.tokens(request), N)
    return [event.note for event in events if event.note]


def held(engine: FakeEngine) -> set[str]:
    return {resident.name for resident in engine.status().residents}


def options(**fields: object) -> EngineOptions:
    return EngineOptions(calibrate=False, **fields)  # type: ignore[arg-type]


def planning(n_budget: int, **fields: object):
    def make(wish: Wish) -> PlacementPlan:
        target = wish.target or "f16"
        others = [name for name in NAMES if name not in (target, "q4")]
        draft = None if target == "q4" or wish.draft == "none" else "q4"
        others += [] if draft or target == "q4" else ["q4"]
        return fake_plan(target, draft, *others, n_budget=n_budget, **fields)

    return make


def test_who_is_over_budget_leaves_oldest_first_and_never_who_is_wanted() -> None:
    sizes = {"a": 5, "b": 3, "c": 2}.__getitem__
    assert over_budget(["a", "b", "c"], {"c"}, 10, sizes) == []
    assert over_budget(["a", "b", "c"], {"c"}, 9, sizes) == ["a"]
    assert over_budget(["a", "b"], {"c"}, 4, sizes) == ["a", "b"]
    assert over_budget(["a", "b"], {"a", "b"}, 1, sizes) == []
    assert over_budget(["a"], {"b"}, None, sizes) == []


@pytest.mark.parametrize("n_parallel", [1, 3])
def test_the_plans_budget_bounds_what_is_in_memory(n_parallel: int) -> None:
    engine = FakeEngine(options(n_parallel=n_parallel), names=NAMES, make_plan=planning(2300))
    with Runtime(engine.family, engine.options, engine) as runtime:
        for target in ("f16", "q8", "q4", "f16", "q8"):
            say(runtime, target, PLAIN)
            assert sum(1100 for _ in held(engine)) <= 2300 and target in held(engine)
        status = engine.status()
        assert status.n_evicted >= 3 and status.swap_s > 0
        assert engine.loads == ["f16", "q8", "q4", "f16", "q8"]
    assert status.plan is not None and status.plan.n_budget == 2300


def test_siblings_that_fit_stay() -> None:
    engine = FakeEngine(options(), names=NAMES, make_plan=planning(1 << 20))
    with Runtime(engine.family, engine.options, engine) as runtime:
        for target in ("f16", "q8", "q4", "f16", "q8"):
            say(runtime, target, PLAIN)
    assert engine.loads == ["f16", "q8", "q4"]


@dataclass(slots=True)
class Tight(FakeModel):
    """Contexts above 1000 tokens cannot be allocated."""

    def context(self, params: ContextParams) -> FakeContext:
        if params.n_ctx > 1000:
            raise ContextError(f"no context of {params.n_ctx} tokens: out of memory?")
        return FakeModel.context(self, params)


def test_a_context_that_cannot_be_made_becomes_the_next_smaller_plan_three_times_at_most() -> None:
    engine = FakeEngine(options(), model_type=Tight, make_plan=planning(1 << 20, n_ctx=2048))
    with Runtime(engine.family, engine.options, engine) as runtime:
        say(runtime)
        assert [notice.split(": ")[1] for notice in runtime.notices] == [
            "no draft now",
            "context of 1024 tokens now",
            "context of 512 tokens now",
        ]
        status = engine.status()
        assert [(each.name, each.n_ctx) for each in status.residents] == [("f16", 512)]
        assert status.plan is not None and status.plan.reasons[-1].topic == "retry"
        say(runtime)  # the next reply starts where the first one ended
        assert len(engine.planned.notices) == 3 and engine.loads == ["f16"]


def test_when_three_smaller_plans_do_not_fit_either_the_error_is_the_engines() -> None:
    engine = FakeEngine(options(), model_type=Tight, make_plan=planning(1 << 20, n_ctx=65536))
    with Runtime(engine.family, engine.options, engine) as runtime, pytest.raises(ContextError, match="out of memory"):
        say(runtime)
    assert len(engine.planned.notices) == 3


def test_a_context_that_the_user_asked_for_is_not_made_smaller() -> None:
    engine = FakeEngine(options(n_ctx=2048, draft="lookup"), model_type=Tight, make_plan=planning(1 << 20, n_ctx=2048))
    with Runtime(engine.family, engine.options, engine) as runtime, pytest.raises(ContextError, match="2048 tokens"):
        say(runtime)


@dataclass(slots=True)
class OneContext(FakeModel):
    """There is memory for the target's context, and for no other."""

    made = 0

    def context(self, params: ContextParams) -> FakeContext:
        OneContext.made += 1
        if OneContext.made > 1:
            raise ContextError("no second context: out of memory?")
        return FakeModel.context(self, params)


def test_a_draft_without_memory_is_done_without_and_said() -> None:
    OneContext.made = 0
    engine = FakeEngine(options(n_ctx=512), model_type=OneContext)
    with Runtime(engine.family, engine.options, engine) as runtime:
        say(runtime)
        assert any("q4 does not draft" in notice for notice in runtime.notices)
        say(runtime)
        assert runtime.notices == [] and held(engine) == {"f16"} and OneContext.made == 2  # not tried again


def profile(n_available: int) -> MemoryProfile:
    return MemoryProfile(100_000, n_available, None, None, None)


def test_under_pressure_the_draft_goes_first_and_it_is_said_once() -> None:
    free = [50_000]
    runtime, engine = fake_runtime(options(n_ctx=512), memory=lambda: profile(free[0]), make_plan=planning(1 << 20))
    with runtime:
        assert say(runtime) == [] and held(engine) == {"f16", "q4"}
        free[0] = 3_000
        (note,) = say(runtime)
        assert "q4 no longer drafts" in note and held(engine) == {"f16"}
        assert say(runtime) == [] and held(engine) == {"f16"}
        free[0] = 50_000
        assert say(runtime) == [] and held(engine) == {"f16", "q4"}
    assert engine.loads == ["f16", "q4", "q4"]


def test_under_pressure_a_draft_that_was_asked_for_stays_and_idle_siblings_go() -> None:
    free = [50_000]
    engine = FakeEngine(options(n_ctx=512), names=NAMES, memory=lambda: profile(free[0]))
    with Runtime(engine.family, engine.options, engine) as runtime:
        say(runtime, "q8", PLAIN)
        asked = SpeculationParams(draft="q4")
        say(runtime, "f16", asked)
        free[0] = 3_000
        assert say(runtime, "f16", asked) == [] and held(engine) == {"f16", "q4"}


def test_relief_names_a_draft_that_is_not_loaded_yet() -> None:
    relief = Relief(lambda: profile(10))
    leaving, news = relief.look(["f16"], draft="q4", in_use=frozenset({"f16"}), n_bytes=lambda _: 100)
    assert leaving is None and "q4" in news and relief.drafts == {"q4"}


def test_many_replies_at_once_survive_budget_and_pressure() -> None:
    """Slots that write are never touched: every answer equals its solo run."""
    import threading

    free = iter([50_000, 3_000, 50_000, 50_000, 3_000] * 100)
    engine = FakeEngine(
        options(n_parallel=3), names=NAMES, make_plan=planning(2300), memory=lambda: profile(next(free))
    )
    wrong: list[object] = []

    def ask(number: int) -> None:
        for i in range(6):
            target = NAMES[(number + i) % 3]
            request = Request(prompt=f"{number} {i}", target=target, sampling=GREEDY, max_tokens=N)
            try:
                _, ids, end = drained(runtime.generate(request))
            except BaseException as error:
                wrong.append(error)
                raise
            if len(ids) != N or (target == "f16" and ids != greedy_fake(runtime.tokens(request), N)):
                wrong.append((target, end))

    with Runtime(engine.family, engine.options, engine) as runtime:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
