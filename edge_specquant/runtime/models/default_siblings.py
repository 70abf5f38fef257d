"""Who answers and who drafts when a request does not say: whom the placement plan chose. Pure.

Without a plan it is the most precise sibling, and its 4-bit one.
"""

from __future__ import annotations

from collections.abc import Callable

from ...gguf.convert.skipped_layers import SKIP
from ...gguf.family.family import Family
from ...gguf.family.guests import any_variant
from ...gguf.format.header import n_nextn_layers
from ...gguf.nested.nested import BASE, NESTED
from ...params import NOT_SIBLINGS
from ...placement.plan.plan_types import PlacementPlan
from ...request import Request
from ..options import EngineOptions

PREFERENCE = ("f16", "bf16", "q8", "q4")
_FAST_ALONE = ("q4", "q4_0", "iq4_nl", "q3", "q2")  # nothing in the family drafts faster than these decode

PlanFor = Callable[[str | None], PlacementPlan | None]
"""The plan for a target; for None the plan that chooses one. None where nothing can be planned."""


def unplanned(target: str | None) -> None:
    """A PlanFor that never knows."""
    del target


def choose_siblings(
    family: Family, options: EngineOptions, request: Request, plan_for: PlanFor = unplanned
) -> tuple[str, str]:
    """(target, draft); draft may be "lookup", "none" or a chain such as "lookup+q4" or "lookup+other:q4".

    Raises FamilyError for a variant there is not, GGUFError for a file that is no model.
    """
    target = family.variant(request.target).name if request.target else default_target(family, options, plan_for)
    draft = request.speculation.draft or default_draft(family, options, target, plan_for)
    if not (request.speculation.draft or options.draft):
        draft = with_head(family, target, draft)
    parts = [part if part in NOT_SIBLINGS else any_variant(family, part).name for part in draft.split("+")]
    return target, "+".join(parts)


def with_head(family: Family, target: str, draft: str) -> str:
    """The default drafters, and the target's own next-token layer after the look-ups where its file has one."""
    if target == NESTED or not draft.startswith("lookup") or "mtp" in draft.split("+"):
        return draft
    has_one = n_nextn_layers(family.path(target)) == 1
    return draft.replace("lookup", "lookup+mtp", 1) if has_one else draft


def default_target(family: Family, options: EngineOptions, plan_for: PlanFor = unplanned) -> str:
    """The variant that answers when a request names none: the plan's target, else the most precise one."""
    if options.target:
        return family.variant(options.target).name
    plan = plan_for(None)
    if plan is not None:
        return plan.target.variant
    return next((name for name in PREFERENCE if name in family.variants), next(iter(family.variants)))


def default_draft(family: Family, options: EngineOptions, target: str, plan_for: PlanFor = unplanned) -> str:
    """Who drafts when a request names nobody: look-ups, and the plan's draft or the 4-bit sibling of a larger target.

    A plan without a draft refused one that would lose, or has no room for it.
    """
    if options.draft:
        return options.draft
    plan = plan_for(target)
    if plan is not None:
        return "lookup" if plan.draft is None else f"lookup+{plan.draft.variant}"
    if target == NESTED:
        return f"lookup+{BASE}"  # already in memory: it is a part of the target
    if SKIP in family.variants and target not in _FAST_ALONE:
        return f"lookup+{SKIP}"  # there because it was measured to be the better draft, or asked for
    return "lookup+q4" if target not in _FAST_ALONE and "q4" in family.variants else "lookup"
