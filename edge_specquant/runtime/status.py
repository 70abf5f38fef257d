"""What a runtime is doing, as plain values that any process can pickle."""

from __future__ import annotations

from dataclasses import dataclass

from ..placement.plan.plan_types import PlacementPlan


@dataclass(frozen=True, slots=True)
class ResidentStatus:
    """A model in memory: weights in bytes, seconds its load took, contexts made on it, tokens its main cache holds."""

    name: str
    n_bytes: int
    load_s: float
    n_contexts: int
    n_ctx: int
    n_cached: int


@dataclass(frozen=True, slots=True)
class Status:
    """mode is "local" or "process"; pid is the engine's process (None when it is not running).

    n_waiting counts replies in line behind the one being written. n_restarts: how often the engine was started again
    after it died. notices: what is not as the user would expect, a line each. plan: the placement in force with its
    reasons and runners-up; None before the first reply, and where nothing could be planned. n_evicted: siblings freed
    for others; swap_s: seconds that loading them again has cost so far.
    """

    mode: str
    family: str
    pid: int | None
    busy: bool
    n_waiting: int
    residents: tuple[ResidentStatus, ...] = ()
    n_snapshots: int = 0
    n_snapshot_bytes: int = 0
    n_restarts: int = 0
    notices: tuple[str, ...] = ()
    log_path: str | None = None
    plan: PlacementPlan | None = None
    n_evicted: int = 0
    swap_s: float = 0.0

    @property
    def n_bytes(self) -> int:
        """Weights in memory."""
        return sum(resident.n_bytes for resident in self.residents)
