"""What a sibling's forwards draw, in watts by width, and the JSON form. Pure: measuring is power.py's business."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Watts:
    """widths ascending; as_target[i] while forwards of widths[i] tokens run, as_draft while single draft tokens do.

    Of the whole machine, or of as much of it as the meter (`source`) sees.
    """

    widths: tuple[int, ...]
    as_target: tuple[float, ...]
    as_draft: float
    source: str

    def __post_init__(self) -> None:
        assert self.widths and list(self.widths) == sorted(set(self.widths))
        assert len(self.widths) == len(self.as_target)

    def at(self, width: int) -> float:
        """Watts during a target forward of `width` tokens: linear between points, flat beyond them."""
        widths, values = self.widths, self.as_target
        if width <= widths[0]:
            return values[0]
        if width >= widths[-1]:
            return values[-1]
        right = bisect_left(widths, width)
        share = (width - widths[right - 1]) / (widths[right] - widths[right - 1])
        return values[right - 1] + share * (values[right] - values[right - 1])

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "widths": list(self.widths),
            "as_target": list(self.as_target),
            "as_draft": self.as_draft,
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Watts:
        """From `as_dict`. Raises KeyError, TypeError, ValueError on anything else."""
        values = tuple(float(watts) for watts in plain["as_target"])
        return cls(tuple(map(int, plain["widths"])), values, float(plain["as_draft"]), str(plain["source"]))
