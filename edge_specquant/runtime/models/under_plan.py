"""The placement plan behind an opened family: what it decides for each sibling, and what is given up when memory fails.

Made when first needed, from headers, a probe and kept curves. What the user said stands above it. Where nothing can be
planned, all is on the CPU, with a context of the usual size. Knows neither models nor requests.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ...errors import EdgeSpecQuantError
from ...gguf.family.family import Family
from ...params import NOT_SIBLINGS
from ...placement.cost.kept_curves import read_all_kept
from ...placement.cost.sibling import siblings_of
from ...placement.machine.hardware import HardwareProfile
from ...placement.machine.this_machine import probe_here
from ...placement.plan.plan import make_plan
from ...placement.plan.plan_types import PlacementPlan, Wish
from ...placement.plan.smaller_plan import MAX_RETRIES, smaller
from ..options import EngineOptions

DEFAULT_N_CTX = 4096
DEFAULT_KV_TYPE = "f16"

Value = TypeVar("Value")
MakePlan = Callable[[Wish], PlacementPlan]
"""The best plan for a wish. Raises errors of our tree."""


def planner_of(family: Family, options: EngineOptions) -> MakePlan:
    """Plans for this family on this machine; headers, machine and kept curves are read once, by the first of them."""

    @functools.cache
    def machine() -> HardwareProfile:
        hardware = probe_here()
        return replace(hardware, gpus=()) if options.n_gpu_layers == 0 else hardware

    @functools.cache
    def plan(wish: Wish) -> PlacementPlan:
        siblings = siblings_of(family, wish.draft)
        n_threads = options.n_threads or machine().cpu.n_threads
        made = make_plan(siblings, machine(), wish, read_all_kept(siblings, n_threads).curves)
        return replace(made, n_threads=n_threads, n_threads_batch=n_threads)

    return plan


def wished_draft(draft: str | None) -> str | None:
    """The draft of a Wish: the sibling in "lookup+q4", "none" where no sibling drafts, None where nobody said."""
    if draft is None:
        return None
    return next((part for part in draft.split("+") if part not in NOT_SIBLINGS), "none")


class Planned:
    """Plans by target and draft, and the one in force. make None (a fake backend) plans nothing, and says nothing."""

    def __init__(self, options: EngineOptions, make: MakePlan | None) -> None:
        self._options = options
        self._make = make
        self._plans: dict[tuple[str | None, str | None], PlacementPlan | None] = {}
        self._key: tuple[str | None, str | None] | None = None
        self._lock = threading.RLock()
        self._n_retries = 0
        self.on_change: Callable[[PlacementPlan], None] = lambda _plan: None
        self.notices: list[str] = []

    # -- which plan ---------------------------------------------------------------------------------------------------

    def plan_for(self, target: str | None, draft: str | None = None) -> PlacementPlan | None:
        """The plan for a target (None: the one that answers when nobody is named) and a wished draft.

        None where none could be made; a notice says why.
        """
        with self._lock:
            key = target or self._options.target, draft or wished_draft(self._options.draft)
            if key not in self._plans:
                self._plans[key] = plan = self._made(*key)
                if plan is not None and key[0] is None:
                    self._plans.setdefault((plan.target.variant, key[1]), plan)
            return self._plans[key]

    def follow(self, target: str, draft: str | None) -> None:
        """Before a reply: keeps the plan in force where it has a place for the target, else takes the target's own."""
        with self._lock:
            now = self.plan
            if self._key is not None and now is not None and now.placement(target) is not None:
                return
            plan = self.plan_for(target, draft)
            self._key = (target, draft or wished_draft(self._options.draft))
            if plan is not None:
                self.on_change(plan)

    @property
    def plan(self) -> PlacementPlan | None:
        """The plan in force: of the first reply, or of the last one it had no place for; before that the default."""
        with self._lock:
            return self.plan_for(None) if self._key is None else self._plans.get(self._key)

    def refusal(self, target: str) -> str:
        """Why no sibling drafts for this target, where one was refused because it would lose; else ""."""
        plan = self.plan_for(target)
        found = next((each for each in plan.reasons if each.topic == "draft"), None) if plan else None
        was_refused = plan is not None and plan.draft is None and found is not None and found.runner_up is not None
        return found.reason if found is not None and was_refused else ""

    # -- what it decides, under what the user said --------------------------------------------------------------------

    def layers(self, variant: str) -> tuple[int, Sequence[float]]:
        """(layers on GPUs, share of each GPU) for a sibling; siblings the plan does not hold stay on the CPU."""
        if self._options.n_gpu_layers is not None:
            return self._options.n_gpu_layers, ()
        plan = self.plan
        found = None if plan is None else plan.placement(variant)
        return (0, ()) if found is None else (found.n_gpu_layers, found.tensor_split)

    @property
    def use_mmap(self) -> bool:
        """Whether files are mapped."""
        return _said(self._options.use_mmap, self.plan, lambda plan: plan.use_mmap, True)

    @property
    def use_mlock(self) -> bool:
        """Whether weights are locked in memory."""
        return _said(self._options.use_mlock, self.plan, lambda plan: plan.use_mlock, False)

    @property
    def kv_types(self) -> tuple[str, str]:
        """Types of the K and V caches."""
        kv_type = self._options.kv_type
        said = None if kv_type is None else (kv_type, kv_type)
        usual = (DEFAULT_KV_TYPE, DEFAULT_KV_TYPE)
        return _said(said, self.plan, lambda plan: (plan.type_k, plan.type_v), usual)

    def n_ctx(self, n_ctx_train: int | None) -> int:
        """Tokens of a context."""
        usual = min(DEFAULT_N_CTX, n_ctx_train or DEFAULT_N_CTX)
        return _said(self._options.n_ctx, self.plan, lambda plan: plan.n_ctx, usual)

    @property
    def n_budget(self) -> int | None:
        """Bytes that all resident siblings may take with their contexts; None where nothing is planned."""
        plan = self.plan
        return None if plan is None else plan.n_budget

    def n_bytes(self, variant: str) -> int | None:
        """Bytes of a sibling with its context, as planned; None for one that has no place."""
        plan = self.plan
        found = None if plan is None else plan.placement(variant)
        return None if found is None else found.n_bytes

    # -- what is given up ---------------------------------------------------------------------------------------------

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
            plan = self._replace(smaller(plan))
        if self._n_retries == MAX_RETRIES or plan is None:
            self._replace(None)  # the CPU holds what no GPU does
        n_left, _ = self.layers(variant)
        self.notices.append(f"{variant} did not fit: {n_left or 'no'} layers on the GPU now")
        return True

    def shrink(self, variant: str) -> bool:
        """After a context that could not be made: the next smaller plan, at most three times, each with a notice.

        Steps that would change what the user said are passed over. False when there is nothing to give up.
        """
        with self._lock:
            plan = self.plan
            if self._n_retries >= MAX_RETRIES or plan is None:
                return False
            following = smaller(plan)
            while following is not None and not self._may_give(plan, following):
                following = smaller(following)
            if following is None:
                return False
            self._n_retries += 1
            self._replace(following)
            self.notices.append(f"memory for {variant} could not be had: {following.reasons[-1].choice} now")
            return True

    def _may_give(self, plan: PlacementPlan, following: PlacementPlan) -> bool:
        """Whether one of the differences is the plan's to make."""
        return (
            (plan.draft != following.draft and self._options.draft is None)
            or (plan.n_ctx != following.n_ctx and self._options.n_ctx is None)
            or (plan.target.n_gpu_layers != following.target.n_gpu_layers and self._options.n_gpu_layers is None)
        )

    def _replace(self, plan: PlacementPlan | None) -> PlacementPlan | None:
        """Another plan in force, also for whoever asks for the same siblings later."""
        with self._lock:
            before = self.plan
            if self._key is None:
                self._key = (None, wished_draft(self._options.draft))
            for key, known in tuple(self._plans.items()):
                if known is before:
                    self._plans[key] = plan
            self._plans[self._key] = plan
            if plan is not None:
                self.on_change(plan)
            return plan

    def _made(self, target: str | None, draft: str | None) -> PlacementPlan | None:
        if self._make is None:
            return None
        options = self._options
        wish = Wish(
            n_ctx=options.n_ctx, target=target, draft=draft, kv_type=options.kv_type, n_parallel=options.n_parallel
        )
        try:
            return self._make(wish)
        except EdgeSpecQuantError as error:
            notice = f"no placement plan, so everything stays on the CPU: {error}"
            self.notices += [] if notice in self.notices else [notice]
            return None


def _said(said: Value | None, plan: PlacementPlan | None, of: Callable[[PlacementPlan], Value], usual: Value) -> Value:
    """What the user said, else what the plan says, else the usual."""
    if said is not None:
        return said
    return usual if plan is None else of(plan)
