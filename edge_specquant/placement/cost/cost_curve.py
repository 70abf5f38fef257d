"""Measured seconds of a forward by width and depth: interpolation, the cheapest width, and the JSON form. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WORTH_PADDING = 0.9  # of the narrower forward's time: what a wider one may cost at most, since measurements stray


@dataclass(frozen=True, slots=True)
class CostCurve:
    """widths ascending; seconds[d][i] is a forward of widths[i] tokens at a context of depths[d] tokens."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        assert self.widths and list(self.widths) == sorted(set(self.widths))
        assert len(self.depths) == len(self.seconds) and all(len(row) == len(self.widths) for row in self.seconds)

    def decode_s(self, width: int, n_past: int = 0) -> float:
        """Seconds of a forward of `width` tokens on n_past: linear between points, the last slope beyond them."""
        rows = [_between(self.widths, row, width) for row in self.seconds]
        if len(rows) == 1:
            return rows[0]
        return max(_between(self.depths, rows, n_past), min(rows) * 0.5)

    def cheapest_width(self, width: int) -> int:
        """The measured width at or above this one that costs least, if clearly less than this one does."""
        best, best_s = width, self.decode_s(width)
        for wider in self.widths[bisect_left(self.widths, width) :]:
            seconds = self.decode_s(wider)
            if seconds < best_s * _WORTH_PADDING:
                best, best_s = wider, seconds
        return best

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "widths": list(self.widths),
            "depths": list(self.depths),
            "seconds": [list(row) for row in self.seconds],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> CostCurve:
        """From `as_dict`. Raises KeyError, TypeError, ValueError on anything else."""
        seconds = tuple(tuple(float(s) for s in row) for row in plain["seconds"])
        return cls(tuple(map(int, plain["widths"])), tuple(map(int, plain["depths"])), seconds)


def _between(points: Sequence[int], values: Sequence[float], at: float) -> float:
    if len(points) == 1:
        return values[0]
    right = min(max(bisect_left(points, at), 1), len(points) - 1)
    left = right - 1
    share = (at - points[left]) / (points[right] - points[left])
    if share <= 0:
        return values[0]
    beyond = values[left] + share * (values[right] - values[left])
    return max(beyond, values[right]) if share > 1 else beyond  # a falling end is a stalled measurement, not a promise
