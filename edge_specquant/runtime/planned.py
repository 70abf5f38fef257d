"""The placement plan behind an opened family: layers for each sibling, and what to give up when a load fails.

Made at the first load, from headers and a probe. Where nothing can be planned, all is on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import EdgeSpecQuantError
from ..gguf.family import Family
from ..placement.here import probe_here
from ..placement.ladder import MAX_RETRIES, smaller
from ..placement.plan import make_plan
from ..placement.plan_types import PlacementPlan, Wish
from ..placement.sibling import siblings_of
from .options import EngineOptions


class Planned:
    """options.n_gpu_layers, where the user gave it, is obeyed for every sibling; else the plan decides for each."""

    def __init__(self, family: Family, options: EngineOptions) -> None:
        self._family = family
        self._options = options
        self._plan: PlacementPlan | None = None
        self._is_made = False
        self._n_retries = 0
        self.notices: list[str] = []

    @property
    def plan(self) -> PlacementPlan | None:
        """The plan in force; None where none could be made (a notice says why)."""
        if not self._is_made:
            self._is_made = True
            try:
                wish = Wish(n_ctx=self._options.n_ctx, target=self._options.target)
                self._plan = make_plan(siblings_of(self._family), probe_here(), wish)
            except EdgeSpecQuantError as error:
                self.notices.append(f"no placement plan, so everything stays on the CPU: {error}")
        return self._plan

    def layers(self, variant: str) -> tuple[int, Sequence[float]]:
        """(layers on GPUs, share of each GPU) for a sibling; siblings the plan does not hold stay on the CPU."""
        if self._options.n_gpu_layers is not None:
            return self._options.n_gpu_layers, ()
        plan = self.plan
        held = [] if plan is None else [plan.target, *([plan.draft] if plan.draft else []), *plan.others]
        found = next((each for each in held if each.variant == variant), None)
        return (0, ()) if found is None else (found.n_gpu_layers, found.tensor_split)

    def give_way(self, variant: str) -> bool:
        """After a failed load: the next smaller plan with fewer layers of this sibling away, at most three times.

        The last of them is CPU only. False when there is nothing to give up.
        """
        n_now, _ = self.layers(variant)
        if self._options.n_gpu_layers is not None or n_now == 0 or self._n_retries >= MAX_RETRIES:
            return False
        self._n_retries += 1
        plan = self.plan
        while plan is not None and self.layers(variant)[0] == n_now:
            self._plan = plan = smaller(plan)
        if self._n_retries == MAX_RETRIES or plan is None:
            self._plan = None  # the CPU holds what no GPU does
        n_left, _ = self.layers(variant)
        self.notices.append(f"{variant} did not fit: {n_left or 'no'} layers on the GPU now")
        return True
