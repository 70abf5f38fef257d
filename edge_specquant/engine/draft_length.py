"""How far to draft: controllers behind one protocol. Pure: they see signals, costs and outcomes, never a token.

`Fixed` always drafts n. `Goodput`, `Entropy` and `SpecKV` decide from confidence and measured cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .draft import Signals
from .stats import RoundRecord


class Controller(Protocol):
    """Decides per round and per token; one per request."""

    def limit(self) -> int:
        """Most draft tokens for the round about to start; 0 is plain decoding."""
        ...

    def should_continue(self, signals: Signals) -> bool:
        """Whether another token is wanted after this one."""
        ...

    def observe(self, record: RoundRecord) -> None:
        """Learns from a finished round."""
        ...

    @property
    def reason(self) -> str:
        """Why n_draft is what it is, in a few words."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always n draft tokens."""

    n: int

    def limit(self) -> int:
        """n."""
        return self.n

    def should_continue(self, signals: Signals) -> bool:
        """Always: the limit ends the draft."""
        del signals
        return True

    def observe(self, record: RoundRecord) -> None:
        """Nothing to learn."""

    @property
    def reason(self) -> str:
        """The caller's wish."""
        return f"fixed at {self.n}"
