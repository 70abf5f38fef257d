"""Many clients at once: each asks its next question when the last was answered. Gives the replies with their times.

Takes somebody to ask and cases. Knows nothing of servers or tables.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from .measurement import Case, Measure, Sample


@dataclass(frozen=True, slots=True)
class Served:
    """One reply under load: what was measured of it, and the time from asking to its last token."""

    sample: Sample
    latency_s: float


@dataclass(frozen=True, slots=True)
class LoadRun:
    """n_clients asked all cases between them in wall_s seconds."""

    n_clients: int
    wall_s: float
    replies: tuple[Served, ...]

    @property
    def n_generated(self) -> int:
        """Tokens of all replies."""
        return sum(served.sample.n_generated for served in self.replies)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all replies over the whole time, prefill and waiting included."""
        return self.n_generated / self.wall_s


def drive(measure: Measure, cases: Sequence[Case], n_clients: int) -> LoadRun:
    """Asks every case once, n_clients at a time. Raises what `measure` raises."""

    def ask(case: Case) -> Served:
        begun = time.perf_counter()
        sample = measure(case)
        return Served(sample, time.perf_counter() - begun)

    begun = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as pool:
        replies = tuple(pool.map(ask, cases))
    return LoadRun(n_clients, time.perf_counter() - begun, replies)


def never_asked(cases: Sequence[Case], n: int, start: int) -> list[Case]:
    """n cases in turn, each with a number in front, so that no server finds its beginning in a cache."""
    chosen = [cases[i % len(cases)] for i in range(n)]
    return [replace(case, prompt=f"({start + i}) {case.prompt}") for i, case in enumerate(chosen)]


def percentiles(values: Sequence[float], shares: Sequence[int]) -> list[float]:
    """Percentiles of at least one value."""
    return [float(value) for value in np.percentile(np.asarray(values, dtype=np.float64), list(shares))]
