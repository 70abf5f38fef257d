"""Asks every case of every contestant, interleaved (A B, B A, A B), within a time budget; gives Runs.

Warms each contestant up first, and cuts replies where even one pass would not fit the budget. The order within a repeat
alternates case by case, so that a machine that slows down slows everybody down. A contestant that fails is left out
with a note. Knows nothing of what is behind a contestant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...errors import ContextFullError, EdgeSpecQuantError, PromptTooLongError
from .measurement import Case, Contestant, Run

OnRun = Callable[[int, int, str], None]
"""Called with (runs done, runs planned, what runs next)."""

_WARM_UP_TOKENS = 8
_FEWEST_TOKENS = 16
_SHARE_OF_FIRST_PASS = 0.6  # of the budget: cases differ, and the warm-up was one of them
MAX_REPEATS = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: at least one whole repeat of the first case of each class, then more while budget_s lasts.

    Where that one repeat would take more than the budget, replies are cut, to no fewer than 16 tokens. repeats fixes
    their number whatever the budget. clock is replaced in tests.
    """

    budget_s: float = 300.0
    repeats: int | None = None
    clock: Callable[[], float] = time.perf_counter

    def left(self, begun_s: float) -> Plan:
        """What remains when something else was measured since begun_s (by the clock): half the budget at least."""
        return replace(self, budget_s=max(0.5 * self.budget_s, self.budget_s - (self.clock() - begun_s)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The runs, contestants that took part, whole repeats done, and what was left out."""

    runs: tuple[Run, ...]
    contestants: tuple[Contestant, ...]
    n_repeats: int
    notes: tuple[str, ...]


def run_all(
    contestants: Sequence[Contestant], cases: Sequence[Case], plan: Plan, on_run: OnRun | None = None
) -> Outcome:
    """Measures. Contestants whose baseline failed stay, without ratios."""
    return _Race(contestants, _classes_first(cases), plan, on_run).run()


class _Race:
    """The contestants still in, and what was measured so far."""

    def __init__(
        self, contestants: Sequence[Contestant], cases: Sequence[Case], plan: Plan, on_run: OnRun | None
    ) -> None:
        self._left = list(contestants)
        self._cases = cases
        self._plan = plan
        self._on_run = on_run
        self._runs: list[Run] = []
        self._notes: list[str] = []
        self._pace: dict[str, tuple[float, float]] = {}
        self._begun = plan.clock()

    def run(self) -> Outcome:
        """Warm-up, then repeats."""
        for contestant in tuple(self._left):
            self._try(contestant, replace(self._cases[0], max_tokens=_WARM_UP_TOKENS), repeat=None)
        self._cut()
        cases, n_repeats = self._first_repeat(), 1
        while self._wants_more(n_repeats):
            for number, case in enumerate(cases):
                self._round(case, n_repeats, number)
            n_repeats += 1
        return Outcome(tuple(self._runs), tuple(self._left), n_repeats, tuple(self._notes))

    def _cut(self) -> None:
        """Shortens replies so that the first case of every class fits, by the warm-up's pace."""
        if self._plan.repeats is not None or not self._pace:
            return
        firsts = list({case.prompt_class: case for case in reversed(self._cases)}.values())
        start_s = sum(start for start, _ in self._pace.values()) * len(firsts)
        token_s = sum(token for _, token in self._pace.values())
        left = self._plan.budget_s - (self._plan.clock() - self._begun)
        room = left * _SHARE_OF_FIRST_PASS - start_s
        if token_s * sum(case.max_tokens for case in firsts) <= room:
            return
        n = max(_FEWEST_TOKENS, int(room / (token_s * len(firsts))))
        if n < max(case.max_tokens for case in self._cases):
            self._notes.append(f"replies were cut to {n} tokens to fit the time; a larger --budget gives whole ones")
            self._cases = [replace(case, max_tokens=min(n, case.max_tokens)) for case in self._cases]

    def _first_repeat(self) -> list[Case]:
        """Every case once; those beyond the first of each class only as the budget allows."""
        n_classes = len({case.prompt_class for case in self._cases})
        done: list[Case] = []
        for number, case in enumerate(self._cases):
            spent = self._plan.clock() - self._begun
            next_s = spent / max(1, number)
            if number >= n_classes and self._plan.repeats is None and spent + next_s > self._plan.budget_s / 2:
                left_out = ", ".join(case.id for case in self._cases[number:])
                self._notes.append(f"left out for lack of time: {left_out}; give a larger --budget")
                break
            self._round(case, 0, number)
            done.append(case)
        return done

    def _wants_more(self, n_repeats: int) -> bool:
        if self._plan.repeats is not None:
            return n_repeats < self._plan.repeats
        spent = self._plan.clock() - self._begun
        return bool(self._left) and n_repeats < MAX_REPEATS and spent * (1 + 1 / n_repeats) <= self._plan.budget_s

    def _round(self, case: Case, repeat: int, number: int) -> None:
        order = tuple(self._left) if (repeat + number) % 2 == 0 else tuple(reversed(self._left))
        for contestant in order:
            self._try(contestant, case, repeat)

    def _try(self, contestant: Contestant, case: Case, repeat: int | None) -> None:
        if self._on_run:
            n_planned = len(self._left) * len(self._cases) * (self._plan.repeats or 1)
            self._on_run(len(self._runs), max(n_planned, len(self._runs)), f"{contestant.name}: {case.id}")
        try:
            sample = contestant.measure(case)
        except (PromptTooLongError, ContextFullError) as error:
            note = f"{case.id} does not fit and was passed over: {error}"
            self._notes += [note] if note not in self._notes else []
            return
        except EdgeSpecQuantError as error:
            self._left = [one for one in self._left if one.name != contestant.name]
            self._notes.append(f"{contestant.name} was left out at {case.id}: {error}")
            return
        if repeat is None:
            self._pace[contestant.name] = (sample.ttft_s or 0.0, sample.decode_s / max(1, sample.n_generated - 1))
        else:
            self._runs.append(Run(contestant.name, case.id, case.prompt_class, repeat, sample))


def _classes_first(cases: Sequence[Case]) -> list[Case]:
    """The first case of every class, then the second ones ..."""
    seen: dict[str, int] = {}
    ranked = []
    for case in cases:
        seen[case.prompt_class] = seen.get(case.prompt_class, 0) + 1
        ranked.append((seen[case.prompt_class], case))
    return [case for _, case in sorted(ranked, key=lambda pair: pair[0])]
