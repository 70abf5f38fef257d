"""The load of many clients: every case is asked once, by so many at a time as was said; ratios are round by round."""

from __future__ import annotations

import threading

import pytest
from patience import PATIENCE_S

from edge_specquant.bench.benches.serving import Entrant, load_table
from edge_specquant.bench.measure.load import LoadRun, Served, drive, never_asked
from edge_specquant.bench.measure.measurement import Case, Sample

CASES = [Case(str(i), "story", f"prompt {i}", 8) for i in range(3)]


@pytest.mark.parametrize("n_clients", [1, 3])
def test_so_many_at_a_time_and_every_case_once(n_clients: int) -> None:
    together = threading.Barrier(n_clients)
    seen: list[str] = []

    def measure(case: Case) -> Sample:
        together.wait(PATIENCE_S)  # nobody goes on before n_clients have come
        seen.append(case.id)
        return Sample(4, 2, 0.0, 0.0)

    run = drive(measure, CASES, n_clients)
    assert sorted(seen) == ["0", "1", "2"] and run.n_generated == 6


def test_no_two_prompts_begin_alike() -> None:
    asked = [*never_asked(CASES, 5, 0), *never_asked(CASES, 5, 5)]
    assert len({case.prompt.split()[0] for case in asked}) == 10


def test_ratios_pair_the_rounds() -> None:
    def run(wall_s: float) -> LoadRun:
        return LoadRun(2, wall_s, (Served(Sample(4, 10, 0.1, 0.5), 0.5),))

    entrants = [
        Entrant("theirs", None, lambda _: Sample(0, 0, None, 0)),
        Entrant("ours", "theirs", lambda _: Sample(0, 0, None, 0)),
    ]
    runs = {("theirs", 2): [run(1.0), run(2.0)], ("ours", 2): [run(0.5), run(1.0)]}
    table = load_table("x", entrants, (2,), runs, "here")
    assert [row[3][:5] for row in table.rows] == ["—", "2.00x"]
