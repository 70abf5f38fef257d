"""What `calibrate` kept about a family on this machine, for the planner: cost curves and watts by place.

Takes siblings and threads, reads the cache folder. Knows nothing of plans.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .calibrate import kept_path, read_kept
from .cost_curve import CostCurve
from .roofline import curve_key
from .sibling import Sibling
from .watt_curve import Watts

_PLACES = (0, -1)  # on the CPU, all layers away


@dataclass(frozen=True, slots=True)
class Kept:
    """Both by `curve_key`. Not every sibling need be there: a plan mends its estimates by what was measured."""

    curves: dict[str, CostCurve]
    watts: dict[str, Watts]


def read_all_kept(siblings: Iterable[Sibling], n_threads: int) -> Kept:
    """Everything there is for these siblings with so many threads."""
    curves: dict[str, CostCurve] = {}
    watts: dict[str, Watts] = {}
    for sibling in siblings:
        for n_gpu_layers in _PLACES:
            found = read_kept(kept_path(sibling.path, n_threads, n_gpu_layers))
            if found is None:
                continue
            key = curve_key(sibling.name, n_gpu_layers)
            curves[key] = found.as_target
            if found.watts is not None:
                watts[key] = found.watts
    return Kept(curves, watts)
