"""What is known of a choice when it has ended: usage, and the figures that only we give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.events import TokenEvent
from ..engine.stats import SpeculationStats
from .engine import Started
from .errors import ApiError, server_error

_ENDS = {"stop": "stop", "length": "length"}


@dataclass(slots=True)
class Outcome:
    """One choice: who answered, and its last event's figures."""

    route: Started | None = None
    stats: SpeculationStats | None = None
    finish_reason: str | None = None

    def end(self, event: TokenEvent) -> None:
        """Takes the last event. Raises ApiError when the reply was broken off rather than ended."""
        reason = event.finish_reason or ""
        if reason not in _ENDS:
            raise broken_off(event)
        self.finish_reason = _ENDS[reason]
        self.stats = event.stats

    def figures(self) -> dict[str, Any]:
        """x_edge_specquant: unknown is null, never zero."""
        return figures([self])


def broken_off(event: TokenEvent) -> ApiError:
    """A reply that the engine did not end: it died, or the server stops it."""
    if event.finish_reason == "cancelled":
        return server_error("the reply was stopped by the server", 503, "cancelled")
    return server_error(event.note or "the engine stopped in the middle of the reply", code="interrupted")


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same over all choices of one answer."""
    known = [outcome.stats for outcome in outcomes if outcome.stats is not None]
    route = outcomes[0].route if outcomes else None
    n_drafted = sum(stats.n_drafted for stats in known)
    speedups = [stats.speedup_estimate for stats in known if stats.speedup_estimate is not None]
    return {
        "route": None if route is None else {"target": route.target, "draft": route.draft},
        "acceptance_rate": sum(stats.n_accepted for stats in known) / n_drafted if n_drafted else None,
        "speedup_estimate": sum(speedups) / len(speedups) if speedups else None,
        "cached_tokens": known[0].n_cached if known else None,
    }


def usage(outcomes: Sequence[Outcome], n_per_prompt: int) -> dict[str, Any]:
    """OpenAI's usage: a prompt counts once, however many choices it has."""
    known = [outcome.stats for outcome in outcomes if outcome.stats is not None]
    firsts = [outcome.stats for outcome in outcomes[::n_per_prompt] if outcome.stats is not None]
    n_prompt = sum(stats.n_prompt for stats in firsts)
    n_generated = sum(stats.n_generated for stats in known)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": sum(stats.n_cached for stats in firsts)},
    }
