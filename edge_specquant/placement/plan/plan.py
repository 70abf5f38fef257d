"""Family and machine -> PlacementPlan: which siblings, how many layers where, how much context, and why.

Takes siblings (their GGUF headers), a HardwareProfile, a Wish, measured cost curves and watts if there are any; gives a
frozen plan that explains itself. Pure. Knows nothing of how models are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...errors import PlanError, UsageError
from ...gguf.convert.skipped_layers import SKIP
from ...units import format_bytes
from ..cost.footprint import ContextShape, check_kv_types
from ..cost.roofline import CostCurve
from ..cost.sibling import Sibling, by_quality
from ..cost.watt_curve import Watts
from ..machine.hardware import HardwareProfile
from .budget import budget_of
from .choice import Choice, best_choice
from .explain import reasons
from .layout import Layout, Site, beside, layouts, site_of
from .plan_types import ModelPlacement, PlacementPlan, Wish

DEFAULT_N_CTX = 8192
_COMFORTABLE_N_CTX = 2048  # below this the variant is shrunk before the context
_SMALLEST_N_CTX = 512
_READABLE_TOKENS_PER_S = 6.0
_CONTEXTS_TO_OFFER = (32768, 16384, 8192, 4096, 2048, 1024, 512)


def make_plan(
    siblings: Iterable[Sibling],
    hardware: HardwareProfile,
    wish: Wish | None = None,
    curves: Mapping[str, CostCurve] | None = None,
    watts: Mapping[str, Watts] | None = None,
) -> PlacementPlan:
    """The best plan for the wish. Raises PlanError when nothing fits, UsageError for a variant that is not there.

    The objective energy needs watts: siblings whose watts are unknown in a place do not go there. Concessions are made
    in this order: draft off the GPU, no draft, context, variant.
    """
    wish = wish or Wish()
    ordered = by_quality(list(siblings))
    if not ordered:
        raise PlanError("the family has no sibling to plan with; run edge-specquant convert again")
    targets, drafts = _candidates(ordered, wish)
    if wish.objective == "energy" and not watts:
        raise PlanError("energy cannot be planned: nothing is known of what the siblings draw; see calibrate")
    groups = _context_groups(targets[0], wish)
    site = site_of(hardware, budget_of(hardware), curves, ordered, groups[0][0])
    site = replace(site, watts=watts if wish.objective == "energy" else None)
    for contexts in groups:
        choices = [best_choice(target, drafts, contexts, site, wish) for target in targets]
        ranked = sorted((c for c in choices if c is not None), key=lambda c: -_score(c.layout, wish))
        if ranked:
            return _plan(ranked, ordered, site, wish)
    raise PlanError(_nothing_fits(ordered, targets, site, wish))


def usual_n_ctx(sibling: Sibling, n_parallel: int = 1) -> int:
    """The context a plan aims at when none is asked for: of each reply, where several are written at a time."""
    aim = DEFAULT_N_CTX if n_parallel == 1 else DEFAULT_N_CTX // 2
    return min(aim, sibling.card.n_ctx_train or aim)


def _candidates(ordered: Sequence[Sibling], wish: Wish) -> tuple[Sequence[Sibling], Sequence[Sibling]]:
    """Possible targets and drafts."""
    by_name = {sibling.name: sibling for sibling in ordered}
    for name in (wish.target, wish.draft):
        if name not in (None, "none") and name not in by_name:
            raise UsageError(f"the family has no variant '{name}'; it has {', '.join(by_name)}")
    own = [sibling for sibling in ordered if not sibling.is_guest]
    whole = [sibling for sibling in own if sibling.name != SKIP] or own  # without layers it can only draft
    targets = [by_name[wish.target]] if wish.target else whole
    if wish.draft == "none":
        return targets, ()
    return targets, [by_name[wish.draft]] if wish.draft else ordered


def _context_groups(sibling: Sibling, wish: Wish) -> list[list[ContextShape]]:
    """Groups of contexts; a later group is looked at only when no sibling fits an earlier one."""
    if wish.n_ctx is not None:
        return [_shapes(sibling, wish, [wish.n_ctx])]
    sizes = [usual_n_ctx(sibling, wish.n_parallel)]
    while sizes[-1] // 2 >= _SMALLEST_N_CTX:
        sizes.append(sizes[-1] // 2)
    comfortable = [n for n in sizes if n >= min(_COMFORTABLE_N_CTX, sizes[0])]
    tight = [n for n in sizes if n not in comfortable]
    return [group for group in (_shapes(sibling, wish, comfortable), _shapes(sibling, wish, tight)) if group]


def _shapes(sibling: Sibling, wish: Wish, sizes: Sequence[int]) -> list[ContextShape]:
    """Each context with the wished KV type, or with f16 and then, where the head sizes allow it, q8_0."""
    if wish.kv_type:
        shapes = [ContextShape(n_ctx, wish.kv_type, wish.kv_type, n_seq=wish.n_parallel) for n_ctx in sizes]
        check_kv_types(sibling.card, shapes[0])
        return shapes
    card = sibling.card
    names = ["f16", "q8_0"] if card.head_size_k % 32 == card.head_size_v % 32 == 0 else ["f16"]
    return [ContextShape(n_ctx, name, name, n_seq=wish.n_parallel) for n_ctx in sizes for name in names]


def _score(layout: Layout, wish: Wish) -> float:
    """What is to be maximised over targets.

    quality: agreement counts to the sixth power, and speed saturates above what can be read and falls off steeply
    below; speed: speed counts in full and agreement only keeps the worst out; energy: the same with tokens per joule;
    memory: fewest bytes.
    """
    if wish.objective == "memory":
        return -float(layout.n_bytes)
    speed, agreement = layout.merit, layout.sibling.agreement
    if wish.objective == "quality":
        return float(agreement**6 * speed**4 / (speed**4 + _READABLE_TOKENS_PER_S**4))
    return float(agreement**1.5 * speed)


def _plan(ranked: Sequence[Choice], ordered: Sequence[Sibling], site: Site, wish: Wish) -> PlacementPlan:
    """The winner as a plan, with its reasons."""
    best = ranked[0].layout
    residents, others = _others(best, ordered, site)
    plan = PlacementPlan(
        target=best.target,
        draft=best.draft,
        n_ctx=best.shape.n_ctx,
        type_k=best.shape.type_k,
        type_v=best.shape.type_v,
        n_threads=site.hardware.cpu.n_threads,
        n_threads_batch=site.hardware.cpu.n_threads,
        use_mmap=not (site.has_one_pool and best.target.n_gpu_layers != 0),
        use_mlock=False,
        residents=residents,
        others=others,
        n_budget=site.budget.host + sum(site.budget.devices),
        n_draft=best.n_draft,
        predicted_tokens_per_s=best.tokens_per_s,
        predicted_alone_tokens_per_s=best.alone_tokens_per_s,
        is_calibrated=best.is_calibrated,
        objective=wish.objective,
        predicted_joules_per_token=best.joules_per_token,
    )
    return replace(plan, reasons=reasons(plan, ranked, site, wish, usual_n_ctx(best.sibling, wish.n_parallel)))


def _others(best: Layout, ordered: Sequence[Sibling], site: Site) -> tuple[tuple[str, ...], tuple[ModelPlacement, ...]]:
    """(siblings that may stay loaded together, placements of those that are neither target nor draft).

    Smallest first: beside the pair where they fit, else where they fit once the pair has been evicted.
    """
    chosen = [placement for placement in (best.target, best.draft) if placement is not None]
    names = [placement.variant for placement in chosen]
    splits = [placement.footprint for placement in chosen]
    others: list[ModelPlacement] = []
    for sibling in reversed(ordered):
        possible = [] if sibling.name in names else layouts(sibling, None, best.shape, site)
        held = [other for other in ordered if other.name in names]
        places = [beside(sibling, layout.target, held) for layout in possible]
        fitting = next((place for place in places if site.budget.fits(*splits, place.footprint)), None)
        if fitting is not None:
            names.append(sibling.name)
            splits.append(fitting.footprint)
        others.extend([fitting or places[0]] if places else [])
    return tuple(names), tuple(others)


def _nothing_fits(ordered: Sequence[Sibling], targets: Sequence[Sibling], site: Site, wish: Wish) -> str:
    smallest = min(targets, key=lambda sibling: sibling.n_bytes)
    note = site.budget.note
    if wish.n_ctx is not None:
        for n_ctx in (n for n in _CONTEXTS_TO_OFFER if n < wish.n_ctx):
            if any(layouts(smallest, None, shape, site) for shape in _shapes(smallest, wish, [n_ctx])):
                return f"{wish.n_ctx} tokens of context do not fit ({note}); {smallest.name} fits with --ctx {n_ctx}"
    text = f"nothing fits: {smallest.name} has {format_bytes(smallest.n_bytes)} of weights alone, and {note}"
    if len(targets) < len(ordered):
        return f"{text}; try another variant of {', '.join(sibling.name for sibling in ordered)}"
    return f"{text}; close other programs, or make a smaller variant (edge-specquant convert --variants q4)"
