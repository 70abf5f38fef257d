"""What a forward of n tokens costs here: a calibrated curve, corrected by the rounds that really ran.

Without a calibration it starts from a plain guess and learns. Pure. Knows nothing of models or tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ...params import FREE_DRAFTERS

_GUESSED_FIRST_S = 0.05
_GUESSED_SLOPE = 0.35  # each further token, as a share of the first; learnt away within a few rounds
_STRETCH = 128  # tokens of context over which a cost counts as constant
_TABLE_WIDTHS = 64
_ALONE_SEEN = 3  # plain rounds before the first bet
_MEMORY = 0.2  # weight of the newest round in a running average
_LARGEST_RISE = 2.0  # one round may seem this many times dearer: what a busy moment looks like proves nothing
_FORGETTING = 0.01  # a round, of a correction that nobody confirms: what once seemed dear is tried again
_STEADY_BEHIND = 8  # tokens a draft may be behind for its round to tell what its steps cost


class Curve(Protocol):
    """Seconds of one forward by width and by tokens already in the context (placement/cost/cost_curve.py)."""

    def decode_s(self, width: int, n_past: int = 0) -> float:
        """Seconds of a forward of `width` tokens."""
        ...

    def cheapest_width(self, width: int) -> int:
        """The width at or above this one that costs least."""
        ...


class Guess:
    """A straight line for machines that were not calibrated."""

    def decode_s(self, width: int, n_past: int = 0) -> float:
        """Seconds of a forward of `width` tokens."""
        del n_past
        return _GUESSED_FIRST_S * (1 + _GUESSED_SLOPE * (width - 1))

    def cheapest_width(self, width: int) -> int:
        """The width itself."""
        return width


class Line:
    """first_s for one token, further_s for each more, whatever the context holds."""

    def __init__(self, first_s: float, further_s: float) -> None:
        self._first_s, self._further_s = first_s, further_s

    def decode_s(self, width: int, n_past: int = 0) -> float:
        """Seconds of a forward of `width` tokens."""
        del n_past
        return self._first_s + self._further_s * (width - 1)

    def cheapest_width(self, width: int) -> int:
        """The width itself."""
        return width


class Costs:
    """The target's and the drafts' curves. `observe_*` keep them honest while the machine's speed drifts.

    Every width has its own correction; widths never run share the average one, to which all others slowly return. A
    correction rises by a bounded step, so that a machine that was busy for a moment does not end drafting for good.

    pending() tells how many tokens the target must decode before any draft (more than one where a rejected draft cost
    it a state), undo_s(n) what keeping a state for a draft of n and going back to it takes, None where that is free.
    company() tells how many other replies share the batches; it is asked once a round. With others a cost is what this
    reply's tokens add to a batch that runs anyway, by the curve: whole batches, as a clock sees them, would make every
    draft look free.
    """

    def __init__(self, target: Curve | None = None, drafts: Mapping[str, Curve] | None = None) -> None:
        self._target: Curve = target or Guess()
        self._drafts = dict(drafts or {})
        self._by_width: dict[int, float] = {}
        self._overall = 1.0
        self._draft_factor: dict[str, float] = {}
        self._n_alone = 0
        self.is_calibrated = target is not None
        self._tables: dict[tuple[str, int], list[float]] = {}
        self._padded: dict[int, int] = {}
        self.company: Callable[[], int] = lambda: 0
        self.n_others = 0
        self.pending: Callable[[], int] = lambda: 1
        self.n_pending = 1
        self.undo_s: Callable[[int], tuple[float, float] | None] = lambda _n_draft: None

    def learn_curve(self, source: str, curve: Curve) -> None:
        """A draft's own curve, where it was measured after these costs were made."""
        self._drafts.setdefault(source, curve)

    def begin_round(self) -> None:
        """Looks who shares the batches now: a round is chosen and booked by one and the same answer."""
        self.n_others = self.company()
        self.n_pending = max(1, self.pending())

    def knows(self, source: str) -> bool:
        """Whether both the target's and this draft's curve were measured."""
        return self.is_calibrated and source in self._drafts

    @property
    def knows_alone(self) -> bool:
        """Whether plain decoding was seen often enough: what all gains are measured against is never a stale guess."""
        return self._n_alone >= _ALONE_SEEN

    def verify_s(self, width: int, n_past: int) -> float:
        """Seconds of a target forward of `width` tokens; in company, this reply's part of it."""
        if self.n_others:
            return self._part_s("", self._target, width, n_past)
        return self._base_s("", self._target, width, n_past) * self._by_width.get(width, self._overall)

    def padded(self, width: int) -> int:
        """The cheapest width at or above this one."""
        known = self._padded.get(width)
        if known is None:
            known = self._padded[width] = self._target.cheapest_width(width)
        return known

    def draft_s(self, source: str, width: int, n_past: int) -> float:
        """Seconds of a draft forward; lookups cost nothing."""
        if source in FREE_DRAFTERS:
            return 0.0
        curve = self._drafts.get(source)
        if curve is not None and self.n_others:
            return self._part_s(source, curve, width, n_past)
        if curve is None:
            seconds = self._base_s("", self._target, width, n_past) / 2
        else:
            seconds = self._base_s(source, curve, width, n_past)
        return seconds * self._draft_factor.get(source, self._overall)

    def observe_verify(self, width: int, n_past: int, seconds: float, *, is_plain: bool = False) -> None:
        """A target forward took so long; is_plain: it wrote one token without a draft."""
        self._n_alone += is_plain
        if self.n_others:
            return  # the clock saw everybody's tokens
        factor = seconds / self._base_s("", self._target, width, n_past)
        if not self._by_width:
            self._overall = factor
        self._forget()
        self._by_width[width] = self._moved(self._by_width.get(width), factor)
        self._overall = self._moved(self._overall, factor)

    def observe_draft(
        self, source: str, n_drafted: int, n_past: int, seconds: float, *, n_behind: int | None = 1
    ) -> None:
        """n draft tokens took so long together; the first step decoded n_behind tokens (None: it copied cells too)."""
        if self.n_others or n_behind is None or n_behind > _STEADY_BEHIND:
            return
        known = self._draft_factor.get(source)
        expected = self.draft_s(source, n_behind, n_past) + (n_drafted - 1) * self.draft_s(source, 1, n_past)
        factor = seconds / expected * (self._overall if known is None else known)
        self._draft_factor[source] = self._moved(known, factor)

    def _moved(self, known: float | None, factor: float) -> float:
        """A correction after another observation; the first one of a calibrated curve is held against the average."""
        if known is None:
            return min(factor, _LARGEST_RISE * self._overall) if self.is_calibrated else factor
        return known + _MEMORY * (min(factor, _LARGEST_RISE * known) - known)

    def _forget(self) -> None:
        """One step of all corrections towards the average."""
        for width, known in self._by_width.items():
            self._by_width[width] = known + _FORGETTING * (self._overall - known)
        for source, known in self._draft_factor.items():
            self._draft_factor[source] = known + _FORGETTING * (self._overall - known)

    def _part_s(self, source: str, curve: Curve, width: int, n_past: int) -> float:
        """A fair share of a batch of one token each, and all of what further tokens add to it."""
        each = self._base_s(source, curve, self.n_others + 1, n_past)
        return self._base_s(source, curve, self.n_others + width, n_past) - each + each / (self.n_others + 1)

    def _base_s(self, source: str, curve: Curve, width: int, n_past: int) -> float:
        """The uncorrected curve, tabulated per stretch of context: the controller asks dozens of times a round."""
        if width >= _TABLE_WIDTHS:
            return curve.decode_s(width, n_past)
        stretch = n_past // _STRETCH
        table = self._tables.get((source, stretch))
        if table is None:
            depth = stretch * _STRETCH
            table = [curve.decode_s(max(1, w), depth) for w in range(_TABLE_WIDTHS)]
            self._tables[source, stretch] = table
        return table[width]
