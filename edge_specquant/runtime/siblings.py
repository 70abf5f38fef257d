"""Who answers and who drafts when a request does not say: the most precise sibling, and its 4-bit one. Pure."""

from __future__ import annotations

from ..gguf.family import Family
from ..gguf.nested import BASE, NESTED
from ..gguf.skipped import SKIP
from ..request import Request
from .options import EngineOptions

PREFERENCE = ("f16", "bf16", "q8", "q4")
_NO_SIBLING = ("none", "lookup")
_FAST_ALONE = ("q4", "q4_0", "iq4_nl", "q3", "q2")  # nothing in the family drafts faster than these decode


def choose_siblings(family: Family, options: EngineOptions, request: Request) -> tuple[str, str]:
    """(target, draft); draft may be "lookup", "none" or a chain such as "lookup+q4".

    Raises FamilyError for a variant there is not.
    """
    target = family.variant(request.target).name if request.target else default_target(family, options)
    draft = request.speculation.draft or default_draft(family, options, target)
    parts = [part if part in _NO_SIBLING else family.variant(part).name for part in draft.split("+")]
    return target, "+".join(parts)


def default_target(family: Family, options: EngineOptions) -> str:
    """The variant that answers when a request names none: the most precise one."""
    if options.target:
        return family.variant(options.target).name
    return next((name for name in PREFERENCE if name in family.variants), next(iter(family.variants)))


def default_draft(family: Family, options: EngineOptions, target: str) -> str:
    """Who drafts when a request names nobody: look-ups, and the 4-bit sibling for a larger target."""
    if options.draft:
        return options.draft
    if target == NESTED:
        return f"lookup+{BASE}"  # already in memory: it is a part of the target
    if SKIP in family.variants and target not in _FAST_ALONE:
        return f"lookup+{SKIP}"  # there because it was measured to be the better draft, or asked for
    return "lookup+q4" if target not in _FAST_ALONE and "q4" in family.variants else "lookup"
