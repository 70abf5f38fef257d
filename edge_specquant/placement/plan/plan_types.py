"""The plan itself: frozen, JSON-able records. No logic beyond derived facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...errors import UsageError
from ..cost.footprint import SplitFootprint

OBJECTIVES = ("quality", "speed", "memory", "energy")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks of a plan; None leaves the choice to the plan. draft "none" means without one.

    n_parallel: replies written at the same time, each with n_ctx tokens of its own.
    """

    objective: str = "quality"
    n_ctx: int | None = None
    target: str | None = None
    draft: str | None = None
    kv_type: str | None = None
    n_parallel: int = 1

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UsageError(f"objective is '{self.objective}'; it must be one of {', '.join(OBJECTIVES)}")
        if self.n_ctx is not None and self.n_ctx < 1:
            raise UsageError(f"the context is {self.n_ctx} tokens; it must be at least 1")


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice, its reason, and what came second (None: there was no other)."""

    topic: str
    choice: str
    reason: str
    runner_up: str | None = None


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """Where one sibling goes. n_gpu_layers: -1 all, 0 none; tensor_split in the order of the engine's devices."""

    variant: str
    path: str
    n_gpu_layers: int
    tensor_split: tuple[float, ...]
    footprint: SplitFootprint

    @property
    def n_bytes(self) -> int:
        """All bytes it takes, everywhere."""
        return self.footprint.n_total


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """What to load and how. predicted_* in tokens/s: None when unknown; is_calibrated tells measured from estimated.

    residents: siblings that may stay loaded together; others: where the siblings that are neither target nor draft go
    when a route needs them; n_budget: bytes all resident models may take, pools together. n_draft: the draft length the
    prediction assumes. predicted_joules_per_token: for the objective energy only.
    """

    target: ModelPlacement
    draft: ModelPlacement | None
    n_ctx: int
    type_k: str
    type_v: str
    n_threads: int
    n_threads_batch: int
    use_mmap: bool
    use_mlock: bool
    residents: tuple[str, ...]
    others: tuple[ModelPlacement, ...]
    n_budget: int
    n_draft: int
    predicted_tokens_per_s: float | None
    predicted_alone_tokens_per_s: float | None
    is_calibrated: bool
    objective: str
    predicted_joules_per_token: float | None = None
    reasons: tuple[Decision, ...] = ()

    def placement(self, variant: str) -> ModelPlacement | None:
        """Where a sibling goes, whatever its part; None for one that fits nowhere."""
        known = (self.target, *((self.draft,) if self.draft else ()), *self.others)
        return next((placement for placement in known if placement.variant == variant), None)

    @property
    def n_gpu_layers(self) -> tuple[int, int]:
        """For target and draft."""
        return self.target.n_gpu_layers, self.draft.n_gpu_layers if self.draft else 0

    @property
    def n_bytes(self) -> int:
        """Of target and draft, everywhere."""
        return self.target.n_bytes + (self.draft.n_bytes if self.draft else 0)

    @property
    def mode(self) -> str:
        """The paper's placement modes by name."""
        target, draft = self.n_gpu_layers
        place = "CPU only" if target == 0 else "target on GPU" if target < 0 else "target split"
        if self.draft is None:
            return f"{place}, no draft"
        if target == draft == 0:
            return "CPU only"
        if target < 0 and draft < 0:
            return "both on GPU"
        return f"{place}, draft {'in RAM' if draft == 0 else 'on GPU'}"

    def as_json(self) -> dict[str, Any]:
        """Plain types for json.dumps, derived facts included."""
        data = asdict(self)
        data["mode"] = self.mode
        data["n_bytes"] = self.n_bytes
        data["n_gpu_layers"] = list(self.n_gpu_layers)
        return data
