"""What the engine thread tells the screen: Textual messages that carry plain values."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from ..engine.stats import SpeculationStats


@dataclass(frozen=True, slots=True)
class FamilyFacts:
    """An opened family: its siblings with their sizes in bytes, and who answers and drafts by default."""

    name: str
    siblings: tuple[tuple[str, int], ...]
    target: str
    draft: str
    n_ctx: int | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """How a reply ended: "stop", "length", "cancelled", "interrupted" (the engine died) or "error".

    reasons: why the router chose these siblings, if one did.
    """

    ticket: int
    finish_reason: str
    stats: SpeculationStats | None
    target: str
    draft: str
    notices: tuple[str, ...] = ()
    error: str | None = None
    reasons: tuple[str, ...] = ()


class EngineNews(Message):
    """Base of everything the engine thread posts."""


class Loading(EngineNews):
    """A step of opening or converting; total 0 is unknown."""

    def __init__(self, step: str, done: int = 0, total: int = 0) -> None:
        super().__init__()
        self.step, self.done, self.total = step, done, total


class Ready(EngineNews):
    """The family is open and its models are in memory."""

    def __init__(self, facts: FamilyFacts) -> None:
        super().__init__()
        self.facts = facts


class NoFamily(EngineNews):
    """Nothing was opened: `wanted` is the name that was asked for; `stopped` when a person wanted it so."""

    def __init__(self, wanted: str | None, reason: str, *, stopped: bool = False) -> None:
        super().__init__()
        self.wanted, self.reason, self.stopped = wanted, reason, stopped


class Trouble(EngineNews):
    """Opening failed; the text is shown verbatim."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Prefilling(EngineNews):
    """Prompt tokens decoded so far."""

    def __init__(self, ticket: int, done: int, total: int) -> None:
        super().__init__()
        self.ticket, self.done, self.total = ticket, done, total


class Arrived(EngineNews):
    """Token events are waiting in the engine's buffer; one such message covers all that came meanwhile."""

    def __init__(self, ticket: int) -> None:
        super().__init__()
        self.ticket = ticket


class Ended(EngineNews):
    """The reply is over; its last events are still in the buffer."""

    def __init__(self, end: ReplyEnd) -> None:
        super().__init__()
        self.end = end


class Counted(EngineNews):
    """How many tokens a text has."""

    def __init__(self, key: str, n_tokens: int) -> None:
        super().__init__()
        self.key, self.n_tokens = key, n_tokens
