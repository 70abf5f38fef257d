"""The router: features and a policy to a route.

Takes features, a policy, what the plan holds and what the user fixed by hand; gives who answers, who drafts, and why.
Pure: no clock, no files, no models. Knows nothing of how the features were made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import PlanError, UsageError
from .features.features import Features
from .policy.flip import nearest_flip
from .policy.override import Override
from .policy.policy import Policy, Tier
from .policy.score import score_of
from .tier_models import LOOKUP, NONE, Available, as_available, map_draft, map_target


@dataclass(frozen=True, slots=True)
class Route:
    """Who works on a prompt. target: a variant; draft: a variant, "lookup", a chain "lookup+q4" or "none".

    thresholds: (medium, high) of the policy. reasons: one line for each step that changed something. nearest_flip: the
    smallest change that would give another tier, or why there is none.
    """

    target: str
    draft: str
    controller: str
    tier: str
    score: float
    thresholds: tuple[float, float]
    features: Features
    reasons: tuple[str, ...]
    nearest_flip: str
    policy: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def route(
    features: Features,
    policy: Policy,
    *,
    available: Available | Iterable[str],
    override: Override | str | None = None,
) -> Route:
    """Decides. `available` is a plan's models, or just the names of the variants.

    Raises PlanError when nothing is available, UsageError for an override that names an absent variant.
    """
    holds = as_available(available)
    fixed = Override.parse(override) if isinstance(override, str) else override or Override()
    if not holds.variants:
        raise PlanError("the plan holds no model at all; convert a family or free memory, then try again")
    score = score_of(features, policy)
    tier, reasons = _choose_tier(features, policy, score, fixed)
    wanted = policy.tiers[tier]
    target, draft, mapping = _choose_siblings(wanted, policy, holds, fixed)
    return Route(
        target=target,
        draft=draft,
        controller=fixed.controller or wanted.controller,
        tier=tier,
        score=score,
        thresholds=(policy.medium, policy.high),
        features=features,
        reasons=(*reasons, *mapping),
        nearest_flip=_describe_flip(features, policy, fixed),
        policy=policy.name,
    )


def _choose_tier(features: Features, policy: Policy, score: float, fixed: Override) -> tuple[str, list[str]]:
    if fixed.tier:
        return fixed.tier, [f"tier {fixed.tier} by hand"]
    unsafe = features.unsafe_reason
    if unsafe:
        return policy.safe_tier, [f"{unsafe}: the safe tier ({policy.safe_tier}) is used"]
    tier = policy.tier_of(score)
    return tier, [f"score {score:.3f} is {tier} (medium from {policy.medium:.3f}, high from {policy.high:.3f})"]


def _choose_siblings(wanted: Tier, policy: Policy, holds: Available, fixed: Override) -> tuple[str, str, list[str]]:
    reasons: list[str] = []
    pool = holds.pool(policy.residents_only)
    if fixed.target:
        target = _existing(fixed.target, holds.variants)
        reasons.append(f"target {target} by hand")
    else:
        target, reason = map_target(wanted.target, pool)
        reasons += [reason] if reason else []
    if fixed.draft:
        for part in fixed.draft.split("+"):
            if part not in (LOOKUP, NONE):
                _existing(part, holds.variants)
        return target, fixed.draft, [*reasons, f"draft {fixed.draft} by hand"]
    draft, changes = map_draft(wanted.draft, target, pool, holds.max_residents)
    return target, draft, [*reasons, *changes]


def _existing(variant: str, variants: tuple[str, ...]) -> str:
    if variant not in variants:
        raise UsageError(f"there is no '{variant}' to use; the plan holds {', '.join(variants)}")
    return variant


def _describe_flip(features: Features, policy: Policy, fixed: Override) -> str:
    if fixed.tier:
        return "the tier was fixed by hand"
    if features.unsafe_reason:
        return "words in a known language would be scored"
    flip = nearest_flip(features, policy)
    return flip.text if flip else "no single feature would change the tier"
