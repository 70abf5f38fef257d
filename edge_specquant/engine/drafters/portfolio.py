"""Several drafters as one: each round the controller takes the best offer, or none.

Only the drafter that was asked hears what was accepted; the others catch up when they are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..sampling import TokenSampler
from ..signals import Choice, Offer
from .draft import NOTHING, Draft, Drafter, GoOn

Choose = Callable[[Sequence[Offer], int], Choice | None]


class Portfolio:
    """Drafters in the order of preference; `choose` is the controller's."""

    def __init__(self, drafters: Sequence[Drafter], choose: Choose) -> None:
        self.name = "+".join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)
        self._choose = choose
        self._asked: Drafter | None = None

    @property
    def decode_s(self) -> float:
        """Seconds spent in forwards so far, by all."""
        return sum(drafter.decode_s for drafter in self._drafters)

    def begin(self, history: Sequence[int]) -> None:
        """A new request for each."""
        for drafter in self._drafters:
            drafter.begin(history)

    def offer(self, history: Sequence[int]) -> Offer | None:
        """The first offer there is."""
        return next((offer for offer in (drafter.offer(history) for drafter in self._drafters) if offer), None)

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        """The chosen drafter's draft; nothing when no offer is worth it."""
        self._asked = None
        made = [(drafter, offer) for drafter in self._drafters if (offer := drafter.offer(history)) is not None]
        if not made:
            return NOTHING
        choice = self._choose([offer for _, offer in made], limit)
        if choice is None or choice.n < 1:
            return NOTHING
        self._asked = made[choice.index][0]
        return self._asked.propose(history, min(limit, choice.n), go_on, sampler)

    def accepted(self, n: int) -> None:
        """For the drafter that was asked."""
        if self._asked is not None:
            self._asked.accepted(n)

    def close(self) -> None:
        """Frees what they own."""
        for drafter in self._drafters:
            drafter.close()
