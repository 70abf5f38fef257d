"""Which settings each bench compares, named as its tables name them. Pure: variants in, Settings out."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...gguf.nested.nested import BASE, NESTED
from ...params import SpeculationParams
from ...routing.features.features import extract
from ...routing.policy.policy import Policy
from ...routing.router import route
from .local_runs import Setting, alone

FULL_PRECISION = ("f16", "bf16", "f32")
ORDER = (*FULL_PRECISION, "q8", NESTED, "q6", "q5", "q4", BASE, "q3", "q2")
_DRAFTERS = ("q4", BASE, "q3", "q2")  # nothing of a family drafts faster than these decode


def by_precision(variants: Collection[str]) -> list[str]:
    """Most bits first; names of other schemes last."""
    return sorted(variants, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def reference_of(variants: Collection[str]) -> str:
    """The most precise sibling: the reference of gains and agreement."""
    return by_precision(variants)[0]


def drafter_for(target: str, variants: Collection[str]) -> str | None:
    """The 4-bit sibling of a larger target (of a nested one: the base inside it); None when there is none."""
    if target in _DRAFTERS:
        return None
    wanted = (BASE,) if target == NESTED else _DRAFTERS
    return next((name for name in wanted if name in variants), None)


def speculation_settings(
    target: str, variants: Collection[str], *, controllers: Collection[str], guests: Collection[str] = ()
) -> list[Setting]:
    """Target alone, a fixed draft of 3, then each controller on the chain lookup -> smaller sibling.

    Each guest (a draft from elsewhere) follows, beside look-ups, and beside look-ups and the sibling.
    """
    drafter = drafter_for(target, variants)
    settings = [alone(target)]
    fixed = drafter or "lookup"
    settings.append(Setting(f"{target} fixed 3", target, SpeculationParams(draft=fixed, n_draft=3, controller="fixed")))
    chain = chain_of(drafter)
    for name in controllers:
        if name == "speckv" and drafter is None:
            continue  # it reads the signals of a model
        draft = fixed if name == "speckv" else chain
        settings.append(Setting(f"{target} {name}", target, SpeculationParams(draft=draft, controller=name)))
    for guest in guests:
        chains = dict.fromkeys((f"lookup+{guest}", f"{chain}+{guest}"))
        settings += [Setting(f"{target} {each}", target, SpeculationParams(draft=each)) for each in chains]
    return settings


def full_settings(variants: Collection[str]) -> list[Setting]:
    """Every sibling alone; for the reference, draft lengths, lookup and the default."""
    reference = reference_of(variants)
    settings = [alone(name) for name in by_precision(variants)]
    drafter = drafter_for(reference, variants)
    if drafter:
        for n in (1, 3, 7):
            params = SpeculationParams(draft=drafter, n_draft=n, controller="fixed")
            tokens = "1 draft token" if n == 1 else f"{n} draft tokens"
            settings.append(Setting(f"{reference} + {drafter}, {tokens}", reference, params))
    if NESTED in variants and BASE in variants:
        nested = SpeculationParams(draft=BASE, n_draft=3, controller="fixed")
        settings.append(Setting(f"{NESTED} + {BASE}, 3 draft tokens", NESTED, nested))
    lookup = SpeculationParams(draft="lookup")
    settings.append(Setting(f"{reference} + lookup", reference, lookup))
    settings.append(Setting(f"{reference} default", reference, SpeculationParams(draft=chain_of(drafter))))
    return settings


def ablation_settings(variants: Collection[str], route_by: Callable[[str], RouteChoice]) -> list[Setting]:
    """Each part alone, then all together: the table that SpecQuant lacks. route_by: a prompt's route."""
    reference = reference_of(variants)
    drafter = drafter_for(reference, variants)
    smaller = [name for name in by_precision(variants) if name != reference]
    settings = [alone(reference), *(Setting(f"quantization only: {n}", n) for n in smaller)]
    if drafter:
        settings += [
            Setting(
                f"speculation only: {drafter}, fixed {n}",
                reference,
                SpeculationParams(draft=drafter, n_draft=n, controller="fixed", pad=False, transplant=False),
            )
            for n in (1, 3, 7)
        ]
        plain = SpeculationParams(draft=drafter, pad=False, transplant=False)
        settings.append(Setting("controller: goodput", reference, plain))
        settings.append(
            Setting("controller + transplant", reference, SpeculationParams(draft=drafter, pad=False, transplant=True))
        )
        settings.append(
            Setting("controller + width padding", reference, SpeculationParams(draft=drafter, transplant=False))
        )
    settings.append(Setting("lookup only", reference, SpeculationParams(draft="lookup", pad=False)))
    if drafter:
        cascade = SpeculationParams(draft=chain_of(drafter), pad=False, transplant=False)
        settings.append(Setting("cascade: lookup, then a sibling", reference, cascade))
        settings.append(Setting("all of it, one target", reference, SpeculationParams(draft=chain_of(drafter))))
    settings.append(Setting("routing only", reference, route=lambda prompt: (route_by(prompt)[0], _ALONE)))
    settings.append(Setting("all of it, routed", reference, route=lambda prompt: _routed(route_by(prompt))))
    return settings


RouteChoice = tuple[str, str, str]
"""(target, draft, controller) of a prompt."""

_ALONE = SpeculationParams(draft="none", n_draft=0)


def router_of(policy_name: str, variants: Collection[str]) -> Callable[[str], RouteChoice]:
    """Routes by a policy, with the rule-based features: words stand for tokens. Raises PlanError, UsageError."""
    policy = Policy.load(policy_name)
    available = tuple(name for name in variants if name not in (BASE, NESTED))

    def choose(prompt: str) -> RouteChoice:
        found = route(extract(prompt, n_tokens=round(1.3 * len(prompt.split()))), policy, available=available)
        return found.target, found.draft, found.controller

    return choose


def speculation_of(choice: RouteChoice) -> SpeculationParams:
    """A route's draft and controller ("fixed:4", "goodput") as speculation parameters."""
    _, draft, controller = choice
    name, _, n = controller.partition(":")
    if draft == "none" or n == "0":
        return _ALONE
    return SpeculationParams(draft=draft, n_draft=int(n) if n else None, controller=name)


def chain_of(drafter: str | None) -> str:
    """Lookup first, then the sibling."""
    return f"lookup+{drafter}" if drafter else "lookup"


def _routed(choice: RouteChoice) -> tuple[str, SpeculationParams]:
    return choice[0], speculation_of(choice)
