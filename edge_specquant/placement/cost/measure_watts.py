"""Measures the watts of a model's forwards: each width is held for a while, since meters are slower than a forward.

Takes a fresh context and an open sampler, gives Watts, or None where the meter fell silent. A battery's gauge moves a
few times a minute, so its figures are one average for all widths.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...native.protocol import Context
from ..power.energy import EnergyMeter, average_watts
from .calibrate import fill, fits, forward
from .watt_curve import Watts

WIDTHS = (1, 2, 4, 8, 16)
HOLD_S = 0.8  # forty readings of a Jetson's rails, eight hundred of a RAPL counter
_DEPTH = 32


def measure_watts(
    context: Context,
    meter: EnergyMeter,
    *,
    hold_s: float = HOLD_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Watts | None:
    """Holds every width for hold_s seconds. The context is emptied before and after."""
    depth = min(_DEPTH, max(1, context.n_ctx - max(WIDTHS)))
    fill(context, depth)
    widths = tuple(width for width in WIDTHS if fits(context, width, depth))
    held = [_held(context, meter, depth, width, True, hold_s, clock) for width in widths]
    as_draft = _held(context, meter, depth, 1, False, hold_s, clock)
    context.clear()
    known = [watts for watts in held if watts is not None]
    if len(known) < len(widths) or as_draft is None or not widths or meter.source is None:
        return None
    return Watts(widths, tuple(known), as_draft, meter.source)


def _held(
    context: Context,
    meter: EnergyMeter,
    depth: int,
    width: int,
    all_rows: bool,
    hold_s: float,
    clock: Callable[[], float],
) -> float | None:
    forward(context, depth, width, all_rows)  # what the width before left behind is not counted
    begun = now = clock()
    while now - begun < hold_s:
        forward(context, depth, width, all_rows)
        now = clock()
    return average_watts(meter.joules(begun, now), now - begun)
