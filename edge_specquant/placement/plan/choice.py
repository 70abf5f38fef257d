"""The best layout of one target: which context, which draft or none, where; with what came second.

Takes a target, possible drafts, contexts in order of preference and a Site; gives a Choice. Pure. Comparing targets is
plan.py's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cost.footprint import ContextShape
from ..cost.roofline import MIN_GAIN
from ..cost.sibling import Sibling
from .layout import Layout, Site, layouts
from .plan_types import Wish

# On a card with memory of its own a shorter context may keep layers from spilling into RAM; what it is worth.
_CONTEXT_VALUE = 0.8  # of half the context
_QUANTIZED_KV_VALUE = 0.97


@dataclass(frozen=True)
class Choice:
    """layout: the best one. refused: the best pair that would not have paid. second: the same models elsewhere."""

    layout: Layout
    best_alone: Layout | None
    refused: Layout | None
    second: Layout | None


def best_choice(
    target: Sibling, drafts: Sequence[Sibling], contexts: Sequence[ContextShape], site: Site, wish: Wish
) -> Choice | None:
    """None when the target fits at none of the contexts.

    With one pool of memory or none but the host's, the largest context that fits is taken: draft before context. On
    cards with their own memory a shorter context is taken when it makes up for itself in speed.
    """
    found: list[tuple[float, Choice]] = []
    for shape in contexts:
        choice = _at(target, drafts, shape, site, wish)
        if choice is None:
            continue
        if wish.objective != "memory" and not any(gpu.memory == "own" for gpu in site.hardware.gpus):
            return choice
        found.append((_worth(choice.layout, contexts[0], wish), choice))
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _at(target: Sibling, drafts: Sequence[Sibling], shape: ContextShape, site: Site, wish: Wish) -> Choice | None:
    """The best at one context. A pair must beat the target alone; a draft that was asked for only has to fit."""
    without = layouts(target, None, shape, site)
    pairs = [
        layout
        for draft in drafts
        if wish.draft or (draft.n_bytes < target.n_bytes and draft.residual is None)
        for layout in layouts(target, draft, shape, site)
    ]
    if not without:
        return None
    best_pair = max(pairs, key=lambda layout: (layout.merit, -layout.n_bytes), default=None)
    pays = best_pair is not None and best_pair.merit >= MIN_GAIN * without[0].merit
    if best_pair is not None and (wish.draft or (pays and wish.objective != "memory")):
        return Choice(best_pair, without[0], None, _elsewhere(best_pair, pairs))
    return Choice(without[0], without[0], best_pair, _elsewhere(without[0], without))


def _elsewhere(best: Layout, others: Sequence[Layout]) -> Layout | None:
    """The best layout of the same models in other places."""
    same = (
        layout
        for layout in others
        if (layout.draft and layout.draft.variant) == (best.draft and best.draft.variant)
        and _places(layout) != _places(best)
    )
    return max(same, key=lambda layout: layout.merit, default=None)


def _places(layout: Layout) -> tuple[object, ...]:
    return layout.target.n_gpu_layers, layout.target.tensor_split, layout.draft and layout.draft.n_gpu_layers


def _worth(layout: Layout, largest: ContextShape, wish: Wish) -> float:
    if wish.objective == "memory":
        return -float(layout.n_bytes)
    halvings = max(0, (largest.n_ctx // max(1, layout.shape.n_ctx)).bit_length() - 1)
    quantized = _QUANTIZED_KV_VALUE if layout.shape.type_k not in {"f16", "bf16", "f32"} else 1.0
    return layout.merit * quantized * _CONTEXT_VALUE**halvings
