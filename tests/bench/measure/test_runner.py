"""Laws of the race: interleaved, warm, within its budget, and whoever fails is left out by name."""

from __future__ import annotations

from itertools import pairwise

from edge_specquant.bench.measure.measurement import Case, Contestant, Sample
from edge_specquant.bench.measure.runner import Plan, run_all
from edge_specquant.errors import DecodeError, PromptTooLongError

CASES = [Case(f"{kind}{i}", kind, "x", 100) for kind in ("a", "b") for i in range(3)]


class World:
    """A clock, and contestants that take a second of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[tuple[str, str, int]] = []

    def contestant(self, name: str, fails_at: str | None = None, seconds: float = 1.0) -> Contestant:
        def measure(case: Case) -> Sample:
            self.now += seconds
            self.log.append((name, case.id, case.max_tokens))
            if case.id == fails_at and case.max_tokens == 100:
                raise DecodeError("broke")
            return Sample(5, 11, 0.1, 1.0, tokens=(1, 2, 3))

        return Contestant(name, "A", "f16", "none", measure)

    def plan(self, budget_s: float = 1e9, repeats: int | None = None) -> Plan:
        return Plan(budget_s, repeats, lambda: self.now)


def test_repeats_are_interleaved_and_pairs_are_neighbours() -> None:
    world = World()
    outcome = run_all([world.contestant("A"), world.contestant("B")], CASES, world.plan(repeats=3))
    timed = [(name, case) for name, case, n in world.log if n == 100]
    assert len(timed) == 3 * 2 * len(CASES) == len(outcome.runs)
    for (one, first), (two, second) in list(pairwise(timed))[::2]:
        assert {one, two} == {"A", "B"} and first == second
    leaders = [name for name, _ in timed[::2]]
    assert leaders.count("A") == leaders.count("B")


def test_everybody_is_warmed_up_first() -> None:
    world = World()
    run_all([world.contestant("A"), world.contestant("B")], CASES, world.plan(repeats=1))
    assert [(name, n < 100) for name, _, n in world.log[:2]] == [("A", True), ("B", True)]


def test_a_small_budget_still_sees_every_class_once() -> None:
    world = World()
    outcome = run_all([world.contestant("A")], CASES, world.plan(budget_s=1))
    assert {run.prompt_class for run in outcome.runs} == {"a", "b"} and len(outcome.runs) == 2
    assert outcome.n_repeats == 1
    assert any("left out for lack of time" in note for note in outcome.notes)


def test_the_budget_is_used_and_kept() -> None:
    world = World()
    outcome = run_all([world.contestant("A")], CASES, world.plan(budget_s=60))
    assert outcome.n_repeats > 1 and len({run.case for run in outcome.runs}) == len(CASES)
    assert 40 <= world.now <= 60


def test_who_fails_is_left_out_by_name_and_the_rest_goes_on() -> None:
    world = World()
    outcome = run_all([world.contestant("A"), world.contestant("B", fails_at="b0")], CASES, world.plan(repeats=2))
    assert [one.name for one in outcome.contestants] == ["A"]
    assert sum(run.contestant == "A" for run in outcome.runs) == 2 * len(CASES)
    assert any(note.startswith("B was left out at b0: broke") for note in outcome.notes)


def test_a_prompt_that_does_not_fit_costs_nobody_the_race() -> None:
    world = World()
    plain = world.contestant("A")

    def measure(case: Case) -> Sample:
        if case.id == "a1":
            raise PromptTooLongError("the prompt has 9 tokens and the context holds 8")
        return plain.measure(case)

    tight = Contestant("A", "A", "f16", "none", measure)
    outcome = run_all([tight, world.contestant("B")], CASES, world.plan(repeats=2))
    assert [one.name for one in outcome.contestants] == ["A", "B"]
    assert len(outcome.notes) == 1 and outcome.notes[0].startswith("a1 does not fit")
    assert {run.case for run in outcome.runs if run.contestant == "A"} == {case.id for case in CASES} - {"a1"}


def test_replies_are_cut_where_one_pass_would_not_fit() -> None:
    """The warm-up's pace here: 0.1 s to the first token, 0.1 s for each further one."""
    for budget_s, least, most in ((1e9, 100, 100), (30.0, 60, 99), (3.0, 16, 16)):
        world = World()
        outcome = run_all([world.contestant("A")], CASES, world.plan(budget_s=budget_s))
        lengths = {n for _, _, n in world.log[1:]}
        assert all(least <= n <= most for n in lengths), (budget_s, lengths)
        assert any("cut to" in note for note in outcome.notes) is (most < 100)
    world = World()
    run_all([world.contestant("A")], CASES, world.plan(budget_s=3.0, repeats=1))
    assert {n for _, _, n in world.log[1:]} == {100}  # a fixed number of repeats is what was asked for


def test_what_else_was_measured_comes_off_the_budget() -> None:
    now = [0.0]
    plan = Plan(100.0, clock=lambda: now[0])
    now[0] = 30.0
    assert plan.left(0.0).budget_s == 70.0
    now[0] = 500.0
    assert plan.left(0.0).budget_s == 50.0  # half is the race's own
