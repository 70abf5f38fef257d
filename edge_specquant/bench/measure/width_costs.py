"""Seconds of one forward by its width, measured on an open model: why a draft length pays or does not.

Takes KV caches, gives medians by width; widths of all siblings are interleaved, so that a noisy moment hits all of
them. Knows nothing of drafts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...engine.caches.kv_cache import KVCache
from .statistics import Spread, spread

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_N_REPEATS = 5


@dataclass(frozen=True, slots=True)
class WidthCost:
    """Seconds of a forward of `width` tokens with logits for each, behind n_past tokens."""

    width: int
    n_past: int
    seconds: Spread


def measure_curves(
    caches: Mapping[str, KVCache],
    *,
    widths: Sequence[int] = WIDTHS,
    n_past: int = 128,
    n_repeats: int = _N_REPEATS,
    token: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, tuple[WidthCost, ...]]:
    """The curve of every cache, which is filled to n_past first and left at that length."""
    for cache in caches.values():
        cache.hold([token] * n_past)
    seconds: dict[tuple[str, int], list[float]] = {}
    for repeat in range(n_repeats + 1):
        for width in widths:
            for name, cache in caches.items():
                begun = clock()
                cache.extend([token] * width, width)
                if repeat:  # the first round warms up
                    seconds.setdefault((name, width), []).append(clock() - begun)
                cache.truncate(n_past)
    curves: dict[str, tuple[WidthCost, ...]] = {}
    for name in caches:
        found = ((width, spread(seconds.get((name, width), []))) for width in widths)
        curves[name] = tuple(WidthCost(width, n_past, each) for width, each in found if each is not None)
    return curves
