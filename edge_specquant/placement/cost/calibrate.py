"""Measures what forwards of each width cost with a model on this machine, and keeps the curves.

Takes a fresh context; gives a Calibration (as a target: logits for every row; as a draft: logits for the last). Kept in
the cache folder per engine build, processor, file, threads and offload. Knows nothing of controllers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ... import config
from ...errors import FileError
from ...gguf.format.atomic import write_text_whole
from ...native.hooks.products import products_key
from ...native.library.engine_key import engine_key
from ...native.protocol import Context
from .cost_curve import CostCurve
from .watt_curve import Watts

FULL_WIDTHS = (*range(1, 17), 20, 24, 32, 40, 48)
DRAFT_WIDTHS = tuple(range(1, 9))
QUICK_WIDTHS = (1, 4, 2, 8, 16, 5, 3, 6, 12, 32)  # in the order of what a short budget should learn first
FULL_DEPTHS = (32, 1024)
QUICK_DEPTHS = (32,)
_WIDE_SPREAD = 0.15  # (upper - lower quartile) / median, above which a width is measured again
_MAX_PASSES = 15

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Calibration:
    """as_target: every row has logits. as_draft: only the last. is_quick: a short measurement with few points.

    watts: what it draws meanwhile; None where that was not measured.
    """

    as_target: CostCurve
    as_draft: CostCurve
    is_quick: bool
    watts: Watts | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "as_target": self.as_target.as_dict(),
            "as_draft": self.as_draft.as_dict(),
            "is_quick": self.is_quick,
            "watts": self.watts.as_dict() if self.watts else None,
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Calibration:
        """From `as_dict`. Raises KeyError, TypeError, ValueError on anything else."""
        target, draft = (CostCurve.from_dict(plain[name]) for name in ("as_target", "as_draft"))
        watts = plain.get("watts")
        return cls(target, draft, bool(plain["is_quick"]), Watts.from_dict(watts) if watts else None)


def calibrate(context: Context, *, n_passes: int = 5, progress: Progress | None = None) -> Calibration:
    """The full measurement: FULL_WIDTHS and DRAFT_WIDTHS at two depths. The context is emptied before and after."""
    depths = [depth for depth in FULL_DEPTHS if depth + max(FULL_WIDTHS) <= context.n_ctx] or [1]
    target = [_measure(context, FULL_WIDTHS, depth, n_passes, True, progress) for depth in depths]
    draft = [_measure(context, DRAFT_WIDTHS, depth, n_passes, False, progress) for depth in depths]
    context.clear()
    return Calibration(_curve(depths, target), _curve(depths, draft), is_quick=False)


def calibrate_quickly(context: Context, budget_s: float) -> Calibration:
    """What can be learnt in about budget_s seconds: at least widths 1 and 4, one depth, at most three passes."""
    depth = min(QUICK_DEPTHS[0], max(1, context.n_ctx - max(QUICK_WIDTHS)))
    fill(context, depth)
    forward(context, depth, 1, True)  # warm-up: pages, caches, clock
    begun = time.perf_counter()
    found: dict[int, list[float]] = {}
    for number_of_pass in range(3):
        for i, width in enumerate(w for w in QUICK_WIDTHS if fits(context, w, depth)):
            if time.perf_counter() - begun > budget_s and (number_of_pass or i >= 2):
                break
            found.setdefault(width, []).append(forward(context, depth, width, True))
    context.clear()
    seconds = {width: min(times) for width, times in found.items()}
    curve = _curve([depth], [seconds])
    return Calibration(curve, curve, is_quick=True)


def kept_path(
    model: Path,
    n_threads: int,
    n_gpu_layers: int,
    kv_types: str = "f16/f16",
    *,
    use_kernel: bool = True,
    kind: str = "calibration",
) -> Path:
    """Where this machine keeps what it measured of this file. Raises OSError for a file that is not there."""
    stat = model.stat()
    machine = (engine_key(), products_key(use_kernel=use_kernel), n_threads, n_gpu_layers, kv_types)
    file = (model.name, stat.st_size, stat.st_mtime_ns)
    digest = hashlib.sha256("\0".join(map(str, machine + file)).encode()).hexdigest()[:24]
    return config.cache_dir() / kind / f"{digest}.json"


def read_kept(path: Path) -> Calibration | None:
    """The kept curves; None when there are none or they cannot be read."""
    try:
        return Calibration.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None


def keep(path: Path, calibration: Calibration) -> None:
    """Writes the curves; a folder that cannot be written costs only a new measurement."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_whole(path, json.dumps(calibration.as_dict()))
    except (FileError, OSError):
        return


def _measure(
    context: Context, widths: Sequence[int], depth: int, n_passes: int, all_rows: bool, progress: Progress | None
) -> dict[int, float]:
    """Median seconds by width. Passes go over all widths in turn, so that a drifting machine bends none alone."""
    usable = [width for width in widths if fits(context, width, depth)]
    fill(context, depth)
    forward(context, depth, max(usable), all_rows)
    found: dict[int, list[float]] = {width: [] for width in usable}
    todo = list(usable)
    for number_of_pass in range(_MAX_PASSES):
        for width in todo:
            found[width].append(forward(context, depth, width, all_rows))
        if progress:
            progress(f"depth {depth}, {'every row' if all_rows else 'last row'}", number_of_pass + 1, n_passes)
        if number_of_pass + 1 >= n_passes:
            todo = [width for width in todo if _spread(found[width]) > _WIDE_SPREAD]
        if not todo:
            break
    return {width: median(sorted(times)[: max(1, len(times) * 2 // 3)]) for width, times in found.items()}


def forward(context: Context, depth: int, width: int, all_rows: bool) -> float:
    """Seconds of one forward of `width` tokens at a depth, which is the depth again afterwards."""
    tokens = [_token(context, i) for i in range(width)]
    begun = time.perf_counter()
    context.decode(tokens, depth, width if all_rows else 1)
    seconds = time.perf_counter() - begun
    if not context.truncate(depth):
        fill(context, depth)
    return seconds


def fill(context: Context, depth: int) -> None:
    """Empties the context and decodes `depth` tokens into it."""
    context.clear()
    for start in range(0, depth, context.n_batch):
        n = min(context.n_batch, depth - start)
        context.decode([_token(context, start + i) for i in range(n)], start, 0)


def _token(context: Context, i: int) -> int:
    return 5 + (i * 7919) % max(1, min(context.n_vocab, 5000) - 10)


def fits(context: Context, width: int, depth: int) -> bool:
    """Whether the context has rows and cells for a forward of `width` tokens at a depth."""
    return width <= min(context.max_rows, context.n_batch) and depth + width <= context.n_ctx


def _spread(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return (ordered[len(ordered) * 3 // 4] - ordered[len(ordered) // 4]) / median(ordered)


def _curve(depths: Sequence[int], measured: Sequence[dict[int, float]]) -> CostCurve:
    widths = tuple(sorted(set.intersection(*(set(each) for each in measured))))
    return CostCurve(widths, tuple(depths), tuple(tuple(each[width] for width in widths) for each in measured))
