"""What a controller wants to spend least of: seconds, or joules (seconds times the watts a forward draws). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Power(Protocol):
    """Watts of one sibling (placement/cost/watt_curve.py)."""

    @property
    def as_draft(self) -> float:
        """Watts while it drafts."""
        ...

    def at(self, width: int) -> float:
        """Watts during a forward of `width` tokens."""
        ...


class Price(Protocol):
    """Turns seconds into what counts."""

    suffix: str
    """What follows a gain in a sentence: nothing, or ' per joule'."""

    def verify(self, width: int, seconds: float) -> float:
        """Of a target forward."""
        ...

    def draft(self, source: str, seconds: float) -> float:
        """Of drafting."""
        ...


class Seconds:
    """Time itself."""

    suffix = ""

    def verify(self, width: int, seconds: float) -> float:
        """The seconds."""
        del width
        return seconds

    def draft(self, source: str, seconds: float) -> float:
        """The seconds."""
        del source
        return seconds


class Joules:
    """Energy. Power was measured once, time is watched: a forward that runs longer costs more joules, too."""

    suffix = " per joule"

    def __init__(self, target: Power, drafts: Mapping[str, Power]) -> None:
        self._target = target
        self._drafts = dict(drafts)

    def verify(self, width: int, seconds: float) -> float:
        """At the target's watts for this width."""
        return seconds * self._target.at(width)

    def draft(self, source: str, seconds: float) -> float:
        """At the draft's watts; whoever has none of its own (look-ups) is priced as the target at width 1."""
        power = self._drafts.get(source)
        return seconds * (self._target.at(1) if power is None else power.as_draft)
