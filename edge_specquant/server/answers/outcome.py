"""What is known of a choice when it has ended: usage, and the figures that only we give."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...engine.events import TokenEvent
from ...engine.stats import SpeculationStats
from ..errors import ApiError, server_error
from ..queue import Started

log = logging.getLogger("edge_specquant.server")

_ENDS = {"stop": "stop", "length": "length"}


@dataclass(slots=True)
class Outcome:
    """One choice: who answered, and its last event's figures."""

    siblings: Started | None = None
    route: dict[str, Any] | None = None
    stats: SpeculationStats | None = None
    finish_reason: str | None = None
    notices: list[str] = field(default_factory=list)

    def note(self, event: TokenEvent) -> None:
        """Keeps what the reply had to do without."""
        if event.note and event.finish_reason is None:
            self.notices.append(event.note)

    def end(self, event: TokenEvent) -> None:
        """Takes the last event. Raises ApiError when the reply was broken off rather than ended."""
        reason = event.finish_reason or ""
        if reason not in _ENDS:
            raise broken_off(event)
        self.finish_reason = _ENDS[reason]
        self.stats = event.stats
        self.route = event.route

    def figures(self) -> dict[str, Any]:
        """x_edge_specquant: unknown is null, never zero."""
        return figures([self])


def broken_off(event: TokenEvent) -> ApiError:
    """A reply that the engine did not end: it died, or the server stops it."""
    if event.finish_reason == "cancelled":
        return server_error("the reply was stopped by the server", 503, "cancelled")
    log.error("interrupted: %s", event.note)  # the note may name files of this machine
    return server_error("the engine stopped in the middle of the reply; ask again", code="interrupted")


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same over all choices of one answer."""
    known = [outcome.stats for outcome in outcomes if outcome.stats is not None]
    n_drafted = sum(stats.n_drafted for stats in known)
    speedups = [stats.speedup_estimate for stats in known if stats.speedup_estimate is not None]
    return {
        "route": _route(outcomes[0]) if outcomes else None,
        "acceptance_rate": sum(stats.n_accepted for stats in known) / n_drafted if n_drafted else None,
        "speedup_estimate": sum(speedups) / len(speedups) if speedups else None,
        "cached_tokens": known[0].n_cached if known else None,
        "notices": list(dict.fromkeys(notice for outcome in outcomes for notice in outcome.notices)),
    }


def _route(outcome: Outcome) -> dict[str, Any] | None:
    """Who answered and who drafted; where a policy chose, its name and reasons too."""
    if outcome.route is not None:
        return {key: outcome.route[key] for key in ("target", "draft", "policy", "tier", "score", "reasons")}
    known = outcome.siblings
    return None if known is None else {"target": known.target, "draft": known.draft}


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
        "completion_tokens_details": {"reasoning_tokens": sum(stats.n_thought for stats in known)},
    }
