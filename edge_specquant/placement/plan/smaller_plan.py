"""The next smaller plan, for when the engine cannot allocate this one. Pure.

Steps: draft from the GPU into RAM, no draft, half the context, half the layers on the GPU, none there. At most
MAX_RETRIES of them are tried; each is said on screen by whoever loads.
"""

from __future__ import annotations

from dataclasses import replace

from ..cost.footprint import Footprint, SplitFootprint
from .plan_types import Decision, ModelPlacement, PlacementPlan

MAX_RETRIES = 3
_SMALLEST_N_CTX = 512
_COMFORTABLE_N_CTX = 2048


def smaller(plan: PlacementPlan) -> PlacementPlan | None:
    """The next plan to try, or None when there is no smaller one. Its last reason says what was given up.

    Byte counts of the result follow by proportion; speeds are None where the plan gives no ground for them.
    """
    target, draft = plan.target, plan.draft
    if draft is not None and draft.n_gpu_layers != 0 and target.n_gpu_layers > 0:
        return _with(plan, "draft in RAM", draft=_layers(draft, 0), predicted_tokens_per_s=None)
    if draft is not None:
        residents = tuple(name for name in plan.residents if name != draft.variant)
        alone = plan.predicted_alone_tokens_per_s
        return _with(plan, "no draft", draft=None, n_draft=0, residents=residents, predicted_tokens_per_s=alone)
    if plan.n_ctx // 2 >= _COMFORTABLE_N_CTX or (target.n_gpu_layers == 0 and plan.n_ctx // 2 >= _SMALLEST_N_CTX):
        n_ctx = plan.n_ctx // 2
        return _with(plan, f"context of {n_ctx} tokens", n_ctx=n_ctx, target=_half_kv(target))
    if target.n_gpu_layers != 0:
        n_now = sum(target.footprint.n_layers_on)
        n_away = n_now // 2 if n_now > 3 else 0
        gives = f"{n_away} layers on the GPU" if n_away else "CPU only"
        moved = _layers(target, n_away)
        return _with(plan, gives, target=moved, predicted_tokens_per_s=None, predicted_alone_tokens_per_s=None)
    return None


def _with(plan: PlacementPlan, gives: str, **changes: object) -> PlacementPlan:
    decision = Decision("retry", gives, "the engine could not allocate the plan before")
    return replace(plan, reasons=(*plan.reasons, decision), **changes)  # type: ignore[arg-type]


def _half_kv(placement: ModelPlacement) -> ModelPlacement:
    split = placement.footprint
    halved = SplitFootprint(
        replace(split.host, n_kv=split.host.n_kv // 2),
        tuple(replace(device, n_kv=device.n_kv // 2) for device in split.devices),
        split.n_layers_on,
    )
    return replace(placement, footprint=halved)


def _layers(placement: ModelPlacement, n_gpu_layers: int) -> ModelPlacement:
    """Keeps n_gpu_layers of the layers that are away; the bytes of the others move to the host."""
    split = placement.footprint
    n_now = sum(split.n_layers_on) or 1
    keep = n_gpu_layers / n_now
    devices = tuple(
        Footprint(int(d.n_weights * keep), int(d.n_kv * keep), d.n_compute if n_gpu_layers else 0, d.n_output)
        for d in split.devices
    )
    moved_weights = sum(old.n_weights - new.n_weights for old, new in zip(split.devices, devices, strict=True))
    moved_kv = sum(old.n_kv - new.n_kv for old, new in zip(split.devices, devices, strict=True))
    compute = max([split.host.n_compute, *(device.n_compute for device in split.devices)])
    host = Footprint(split.host.n_weights + moved_weights, split.host.n_kv + moved_kv, compute, split.host.n_output)
    layers_on = tuple(int(n * keep) for n in split.n_layers_on)
    return replace(placement, n_gpu_layers=n_gpu_layers, footprint=SplitFootprint(host, devices, layers_on))
