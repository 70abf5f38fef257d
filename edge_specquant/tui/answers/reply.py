"""A reply while it arrives: its text, who each piece came from, its pace; and the record kept of it afterwards.

Takes TokenEvents, gives text to show, runs of (origin, characters) and figures. Knows nothing of widgets or threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...printable import shown

if TYPE_CHECKING:
    from ...engine.events import TokenEvent
    from ...engine.stats import SpeculationStats
    from ...store import Message

PACE_WINDOW_S = 3.0
KINDS = ("target", "draft", "lookup", "agreed")

Run = tuple[str, str]
"""(kind of origin, text): neighbours of one kind joined."""


def kind_of(origin: str | None) -> str:
    """The kind of an origin: a sibling's name is a draft."""
    return "target" if origin is None else origin if origin in KINDS else "draft"


@dataclass(slots=True)
class Reply:
    """One reply in flight. Times are seconds of any steady clock. `expected`: the tokens of the reply it redoes."""

    ticket: int
    started: float
    expected: tuple[int, ...] = ()
    n_agreed: int = 0
    n_tokens: int = 0
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    accepted_by_round: list[int] = field(default_factory=list)
    drafted_by_round: list[int] = field(default_factory=list)
    first_at: float | None = None
    prefill: tuple[int, int] | None = None
    thought: str = ""
    n_thought: int = 0
    answer_at: float | None = None
    earlier_thought_s: float | None = None
    _stamps: deque[tuple[float, int]] = field(default_factory=deque)
    _in_round: int = 0
    _drafted: int = 0
    _pending_kind: str = "target"

    def take(self, events: Iterable[TokenEvent], now: float) -> list[Run]:
        """Adds events that arrived by `now`; gives the new pieces, control characters made visible."""
        fresh: list[Run] = []
        n_before = self.n_tokens
        for event in events:
            if event.token_id is not None:
                self._drafted = event.n_draft or self._drafted
                self._count(event.token_id, kind_of(event.origin), now)
                self.n_thought += event.part == "thought"
            self.thought += event.thought
            if event.text:
                self.answer_at = now if self.answer_at is None else self.answer_at
                _join(fresh, self._pending_kind, shown(event.text))
                self.text += event.text
        for kind, text in fresh:
            _join(self.runs, kind, text)
        if self.n_tokens > n_before:
            self._stamps.append((now, self.n_tokens))
        return fresh

    def begin_with(self, earlier: Message) -> None:
        """What an earlier answer thought and said already; this one goes on with it."""
        record = earlier.record
        self.text, self.runs, self.tokens = earlier.text, runs_of(earlier.text, record), list(tokens_of(record))
        self.thought, self.n_thought = earlier.thought, n_thought_of(record) or 0
        self.earlier_thought_s = thought_s_of(record)

    def thought_s(self, now: float) -> float | None:
        """Seconds from the first token to the answer's first, or to now; None where nothing was thought."""
        if not self.thought or self.first_at is None or self.earlier_thought_s is not None:
            return self.earlier_thought_s
        return (now if self.answer_at is None else self.answer_at) - self.first_at

    def tokens_per_s(self, now: float) -> float | None:
        """The pace of the last seconds; None while it cannot be told."""
        while len(self._stamps) > 2 and now - self._stamps[0][0] > PACE_WINDOW_S:
            self._stamps.popleft()
        if len(self._stamps) < 2:
            return None
        (first_s, first_n), (last_s, last_n) = self._stamps[0], self._stamps[-1]
        return (last_n - first_n) / (last_s - first_s) if last_s > first_s else None

    def record(
        self, stats: SpeculationStats | None, target: str, draft: str, extra: Mapping[str, object]
    ) -> dict[str, object]:
        """What the store keeps of the reply, as plain JSON values."""
        kept: dict[str, object] = {
            "target": target,
            "draft": draft,
            "tokens": list(self.tokens),
            "origins": [[kind, len(text)] for kind, text in self.runs],
        }
        if self.thought:
            kept |= {"n_thought": self.n_thought}
        if stats is not None:
            kept["stats"] = stats.as_dict()
        return kept | dict(extra)

    def _count(self, token: int, kind: str, now: float) -> None:
        if self.first_at is None:
            self.first_at = now
        if self.n_agreed == self.n_tokens < len(self.expected) and token == self.expected[self.n_agreed]:
            self.n_agreed += 1
            kind = "agreed"  # also what the target wrote between two blocks of the judged reply
        self.n_tokens += 1
        self.tokens.append(token)
        self._pending_kind = kind
        if kind == "target":
            self.accepted_by_round.append(self._in_round)
            self.drafted_by_round.append(self._drafted)
            self._in_round = self._drafted = 0
        else:
            self._in_round += 1


def runs_of(text: str, record: Mapping[str, object]) -> list[Run]:
    """The runs of a stored reply; one run of the target when its record does not tell."""
    visible = shown(text)
    runs: list[Run] = []
    at = 0
    origins = record.get("origins")
    for item in origins if isinstance(origins, list) else []:
        if isinstance(item, list) and len(item) == 2 and isinstance(item[1], int):
            runs.append((kind_of(str(item[0])), visible[at : at + item[1]]))
            at += item[1]
    if at < len(visible):
        _join(runs, "target", visible[at:])
    return runs


def tokens_of(record: Mapping[str, object]) -> tuple[int, ...]:
    """The token ids of a stored reply; empty when its record does not hold them."""
    tokens = record.get("tokens")
    whole = isinstance(tokens, list) and all(isinstance(token, int) for token in tokens)
    return tuple(tokens) if isinstance(tokens, list) and whole else ()


def answer_tokens_of(record: Mapping[str, object]) -> tuple[int, ...]:
    """Those of the answer alone."""
    return tokens_of(record)[n_thought_of(record) or 0 :]


def n_thought_of(record: Mapping[str, object]) -> int | None:
    """Tokens of a stored reply before its answer; None where nothing was thought."""
    n_thought = record.get("n_thought")
    return n_thought if isinstance(n_thought, int) else None


def thought_s_of(record: Mapping[str, object]) -> float | None:
    """Seconds that a stored reply was thought about."""
    seconds = record.get("thought_s")
    return float(seconds) if isinstance(seconds, (int, float)) else None


def footnote(record: Mapping[str, object]) -> str:
    """One line of figures under a stored reply; unknown ones are left out."""
    from ...units import format_rate

    stats = record.get("stats")
    figures: Mapping[str, object] = stats if isinstance(stats, dict) else {}
    n, rate, accepted = (figures.get(name) for name in ("n_generated", "tokens_per_s", "acceptance_rate"))
    speedup = figures.get("speedup_estimate")
    parts = [f"{n} tokens"] if isinstance(n, int) else []
    parts += [format_rate(rate)] if isinstance(rate, float) else []
    parts += [f"{accepted:.0%} of drafts accepted"] if isinstance(accepted, float) else []
    parts += [f"{speedup:.2f}x the target alone"] if isinstance(speedup, float) else []
    redo = record.get("redo")
    if isinstance(redo, dict):
        parts.append(f"{redo.get('target')} agrees with the first {redo.get('n_agreeing')} of {redo.get('n_tokens')}")
    return " · ".join(parts)


def _join(runs: list[Run], kind: str, text: str) -> None:
    if runs and runs[-1][0] == kind:
        runs[-1] = (kind, runs[-1][1] + text)
    else:
        runs.append((kind, text))
