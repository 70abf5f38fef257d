"""All the ways to put a target and perhaps a draft onto one machine that fit, each with its expected speed.

Takes siblings, a context and a Site (machine, budget, curves, watts); gives Layouts. Pure. The paper's modes are here:
both models on the GPU, the target there and the draft in RAM, a split of the target's layers, CPU only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from ...units import format_rate
from ..cost.footprint import ContextShape, SplitFootprint, footprint
from ..cost.roofline import CostCurve, Priced, Roofline, alone, curve_for, curve_key, paired, roofline
from ..cost.sibling import Sibling, expected_acceptance
from ..cost.watt_curve import Watts
from ..machine.hardware import HardwareProfile
from .budget import Budget
from .plan_types import ModelPlacement


@dataclass(frozen=True)
class Site:
    """Where models are to be put: the machine, what may be used of it, measured curves if any.

    host_factor: measured over estimated seconds of what was measured on the CPU, by which other estimates are mended.
    watts, by the same keys as curves: given where the plan is to save joules.
    """

    hardware: HardwareProfile
    budget: Budget
    curves: Mapping[str, CostCurve] = field(default_factory=dict)
    host_factor: float = 1.0
    watts: Mapping[str, Watts] | None = None

    @property
    def has_one_pool(self) -> bool:
        """The only device shares the host's memory: layers cannot spill from one to the other."""
        return self.budget.unified == (True,)


@dataclass(frozen=True)
class Layout:
    """One way that fits. alone_tokens_per_s: the same target in the same place without the draft."""

    sibling: Sibling
    shape: ContextShape
    target: ModelPlacement
    draft: ModelPlacement | None
    tokens_per_s: float
    alone_tokens_per_s: float
    n_draft: int
    is_calibrated: bool
    joules_per_token: float | None = None

    @property
    def merit(self) -> float:
        """Tokens per joule where joules count, else tokens per second."""
        return self.tokens_per_s if self.joules_per_token is None else 1.0 / self.joules_per_token

    @property
    def n_bytes(self) -> int:
        """Of both models, everywhere."""
        return self.target.n_bytes + (self.draft.n_bytes if self.draft else 0)

    @property
    def place(self) -> str:
        """'all layers on the GPU, draft in RAM, 12.3 tok/s'."""
        n = self.target.n_gpu_layers
        target = "on the CPU" if n == 0 else f"{'all' if n < 0 else n} layers on the GPU"
        where = "in RAM" if self.draft is not None and self.draft.n_gpu_layers == 0 else "there too"
        draft = f", draft {where}" if self.draft is not None else ""
        return f"{target}{draft}, {format_rate(self.tokens_per_s)}"


def site_of(
    hardware: HardwareProfile,
    budget: Budget,
    curves: Mapping[str, CostCurve] | None,
    siblings: Sequence[Sibling],
    shape: ContextShape,
) -> Site:
    """A Site whose estimates agree with what was measured: else a sibling never measured would look too good."""
    site = Site(hardware, budget, curves or {})
    ratios = [
        measured.decode_s(1) / _estimate(sibling, _placement(sibling, shape, site, 0, ()), shape, site).decode_s(1)
        for sibling in siblings
        if (measured := site.curves.get(curve_key(sibling.name, 0))) is not None
    ]
    return replace(site, host_factor=median(ratios)) if ratios else site


def layouts(target: Sibling, draft: Sibling | None, shape: ContextShape, site: Site) -> list[Layout]:
    """Every sensible layout that fits, best first; where joules count, only those whose watts are known."""
    found: list[Layout] = []
    for draft_place in _draft_places(draft, shape, site, target.holds(draft)) if draft else (None,):
        taken = () if draft_place is None else (draft_place.footprint,)
        for target_place in _target_places(target, shape, site, taken):
            if site.budget.fits(target_place.footprint, *taken):
                rated = _rate(target, draft, shape, site, target_place, draft_place)
                found.extend([rated] if rated is not None else [])
    return sorted(found, key=lambda layout: -layout.merit)


def beside(sibling: Sibling, placement: ModelPlacement, others: Sequence[Sibling]) -> ModelPlacement:
    """The placement without the weights that one of the others, in memory already, holds for it."""
    return _without_weights(placement) if any(other.holds(sibling) for other in others) else placement


def _draft_places(draft: Sibling, shape: ContextShape, site: Site, is_held: bool) -> Iterator[ModelPlacement]:
    """Whole on the local GPU with most room, or in RAM. A draft never crosses a network.

    is_held: the target's weights are the draft's too, and are counted there.
    """
    local = _local(site)
    if draft.is_cpu_only:
        in_ram = _placement(draft, shape, site, 0, ())
        yield _without_weights(in_ram) if is_held else in_ram
        return
    if local:
        roomiest = max(local, key=lambda index: _room(site, index, ()))
        yield _placement(draft, shape, site, -1, _shares(site, [roomiest], ()))
    if not site.has_one_pool:
        yield _placement(draft, shape, site, 0, ())


def _target_places(
    target: Sibling, shape: ContextShape, site: Site, taken: Sequence[SplitFootprint]
) -> Iterator[ModelPlacement]:
    """All layers away, or the most that fit, or none; on the roomiest device, all local ones, remote ones too.

    Unified memory never spills to itself: there it is all.
    """
    if target.is_cpu_only:
        yield _placement(target, shape, site, 0, ())
        return
    for devices in _device_sets(site, taken):
        split = _shares(site, devices, taken)
        if site.has_one_pool:
            yield _placement(target, shape, site, -1, split)
            return
        n_away = _most_layers(target, shape, site, split, taken) if sum(split) > 0 else 0
        if n_away > 0:
            yield _placement(target, shape, site, -1 if n_away > target.card.n_layer else n_away, split)
    yield _placement(target, shape, site, 0, ())


def _device_sets(site: Site, taken: Sequence[SplitFootprint]) -> list[list[int]]:
    local, everything = _local(site), list(range(len(site.hardware.gpus)))
    roomiest = sorted(local, key=lambda index: -_room(site, index, taken))[:1]
    sets: list[list[int]] = []
    for devices in (roomiest, local, everything):
        if devices and devices not in sets:
            sets.append(devices)
    return sets


def _local(site: Site) -> list[int]:
    return [index for index, gpu in enumerate(site.hardware.gpus) if gpu.memory != "remote"]


def _room(site: Site, index: int, taken: Sequence[SplitFootprint]) -> int:
    host, *devices = site.budget.left(*taken)
    return max(0, host if site.budget.unified[index] else devices[index])


def _shares(site: Site, devices: Sequence[int], taken: Sequence[SplitFootprint]) -> tuple[float, ...]:
    """tensor_split over all devices, by what is left on the chosen ones; rounded so that a plan reads well."""
    free = [_room(site, index, taken) if index in devices else 0 for index in range(len(site.hardware.gpus))]
    total = sum(free)
    return tuple(round(n / total, 3) for n in free) if total else (0.0,) * len(free)


def _most_layers(
    target: Sibling, shape: ContextShape, site: Site, split: tuple[float, ...], taken: Sequence[SplitFootprint]
) -> int:
    """The largest number of layers (head included) that every device has room for, 0 if none; by bisection."""
    low, high = 0, target.card.n_layer + 1
    while low < high:
        middle = (low + high + 1) // 2
        placed = _placement(target, shape, site, middle, split)
        if all(free >= 0 for free in site.budget.left(placed.footprint, *taken)[1:]):
            low = middle
        else:
            high = middle - 1
    return low


def _placement(
    sibling: Sibling, shape: ContextShape, site: Site, n_gpu_layers: int, split: tuple[float, ...]
) -> ModelPlacement:
    n_devices = len(site.hardware.gpus)
    placed = footprint(
        sibling.card,
        shape,
        n_gpu_layers=n_gpu_layers,
        tensor_split=split or (0.0,) * n_devices,
        is_arm="asimd" in site.hardware.cpu.features,
        weights=sibling.weights,
    )
    shown_split = split if n_devices > 1 else ()
    return ModelPlacement(sibling.name, str(sibling.path), n_gpu_layers, shown_split, placed)


def _without_weights(placement: ModelPlacement) -> ModelPlacement:
    host = replace(placement.footprint.host, n_weights=0)
    return replace(placement, footprint=replace(placement.footprint, host=host))


def _rate(
    target: Sibling,
    draft: Sibling | None,
    shape: ContextShape,
    site: Site,
    target_place: ModelPlacement,
    draft_place: ModelPlacement | None,
) -> Layout | None:
    """Its expected figures; the draft length is the one with most merit."""
    curve, measured = _curve(target, target_place, shape, site)
    by_itself = best = alone(curve)
    power = _watts(target_place, site)
    joules = 1.0 / alone(Priced(curve, power.at)).tokens_per_s if power else None
    if draft is not None and draft_place is not None:
        draft_curve, draft_measured = _curve(draft, draft_place, shape, site)
        acceptance = expected_acceptance(target, draft)
        best = paired(curve, draft_curve, acceptance)
        measured = measured and draft_measured
        draft_power = _watts(draft_place, site)
        if power and draft_power:
            as_draft = Priced(draft_curve, lambda _: draft_power.as_draft)
            thrifty = paired(Priced(curve, power.at), as_draft, acceptance)
            joules = 1.0 / thrifty.tokens_per_s
            best = paired(curve, draft_curve, acceptance, n_draft=thrifty.n_draft)
        elif site.watts is not None:
            return None
    if site.watts is not None and power is None:
        return None
    return Layout(
        target,
        shape,
        target_place,
        draft_place,
        best.tokens_per_s,
        by_itself.tokens_per_s,
        best.n_draft,
        measured,
        joules,
    )


def _watts(place: ModelPlacement, site: Site) -> Watts | None:
    return (site.watts or {}).get(curve_key(place.variant, place.n_gpu_layers))


def _curve(sibling: Sibling, place: ModelPlacement, shape: ContextShape, site: Site) -> tuple[CostCurve, bool]:
    estimate = _estimate(sibling, place, shape, site)
    if place.n_gpu_layers == 0:
        estimate = Roofline(estimate.first_s * site.host_factor, estimate.further_s * site.host_factor)
    return curve_for(site.curves, sibling.name, place.n_gpu_layers, estimate)


def _estimate(sibling: Sibling, place: ModelPlacement, shape: ContextShape, site: Site) -> Roofline:
    return roofline(
        site.hardware,
        place.footprint,
        n_decode_bytes=sibling.n_decode_bytes,
        n_read_bytes=sibling.n_read_bytes,
        n_further_bytes=sibling.n_further_bytes,
        n_parameters=sibling.n_parameters,
        n_ctx=shape.n_ctx,
    )
