"""What was measured about a family's files on this machine: cost curves, watts, width certificates; when first needed.

Knows where they are kept. Knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...engine.caches.certificate import Certificate
from ...engine.caches.certificate_files import certificate
from ...engine.caches.kv_cache import KVCache
from ...engine.control.costs import Curve
from ...gguf.family.family import Family
from ...gguf.family.guests import any_variant, is_guest
from ...native.protocol import Context, Model
from ...placement.cost.calibrate import Calibration, calibrate_quickly, keep, kept_path, read_kept
from ...placement.cost.measure_watts import measure_watts
from ...placement.cost.watt_curve import Watts
from ...placement.power.energy import EnergySampler
from ...placement.power.meters import find_meter
from ..options import EngineOptions

KvTypes = Callable[[], tuple[str, str]]
QUICK_BUDGET_S = 1.5  # what a first load may spend on measuring


class Measured:
    """Curves and certificates by variant; layers(variant) are on GPUs, kv_types() are those of K and V caches.

    Families of fake models have none.
    """

    def __init__(self, family: Family, options: EngineOptions, layers: Callable[[str], int], kv_types: KvTypes) -> None:
        self._family = family
        self._layers = layers
        self._kv_types = kv_types
        self._options = options
        self._known: dict[str, Calibration | None] = {}
        self._no_meter = ""

    def curves(self, variant: str) -> tuple[Curve, Curve] | None:
        """(as target, as draft), or None when they were never measured."""
        if not self._has_file(variant):
            return None
        if variant not in self._known:
            self._known[variant] = read_kept(self.path(variant))
        known = self._known[variant]
        return None if known is None else (known.as_target, known.as_draft)

    def measure(self, variant: str, context: Context) -> None:
        """A quick calibration on a fresh context, where there is none yet."""
        if self.curves(variant) is None and self._has_file(variant):
            made = self._known[variant] = calibrate_quickly(context, QUICK_BUDGET_S)
            keep(self.path(variant), made)

    def measure_power(self, variant: str, context: Context) -> None:
        """Its watts, on a fresh context of a sibling whose curves are known; nothing where no meter answers."""
        known = self._known.get(variant)
        if known is None or known.watts is not None:
            return
        meter, reasons = find_meter(uses_gpu=bool(self._layers(variant)))
        if meter is None:
            self._no_meter = f"this machine has no energy meter ({'; '.join(reasons)})"
            return
        with EnergySampler(meter) as sampler:
            made = self._known[variant] = replace(known, watts=measure_watts(context, sampler))
        keep(self.path(variant), made)

    def power(self, variant: str) -> tuple[Watts | None, str]:
        """(watts, ""), or None and why they are unknown."""
        self.curves(variant)
        known = self._known.get(variant)
        watts = known.watts if known else None
        return watts, "" if watts else self._no_meter or f"the watts of {variant} could not be measured"

    def certificate(self, variant: str, model: Model, target: KVCache) -> Certificate:
        """Kept, or measured now on the target's own context, which is emptied for it."""
        kept_in = self._kept(variant, "certificates")
        if not kept_in.is_file():
            target.truncate(0)
        return certificate(target.context, model.vocab, kept_in)

    def path(self, variant: str) -> Path:
        """Where the variant's calibration is kept."""
        return self._kept(variant, "calibration")

    def _has_file(self, variant: str) -> bool:
        return variant in self._family.variants or is_guest(variant)

    def _kept(self, variant: str, kind: str) -> Path:
        path, options = any_variant(self._family, variant).path, self._options
        kv_types, n_layers = "/".join(self._kv_types()), self._layers(variant)
        return kept_path(path, options.n_threads, n_layers, kv_types, use_kernel=options.use_kernel, kind=kind)
