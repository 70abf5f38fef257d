"""What the side panel says: sections of (label, value) from a reply, its family and the machine. Pure.

A figure that is not known is absent, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..units import format_bytes, format_rate, format_seconds
from .answers.reply import Reply
from .news import FamilyFacts, ReplyEnd

if TYPE_CHECKING:
    from ..engine.stats import SpeculationStats
    from ..placement.power.vitals import Vitals

Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its rows."""

    title: str
    rows: tuple[tuple[str, str], ...]


def sections(
    facts: FamilyFacts | None, reply: Reply | None, end: ReplyEnd | None, vitals: Vitals | None, now: float
) -> list[Section]:
    """Sections that have something to say, in the order of the panel."""
    stats = end.stats if end else None
    found = (
        ("speed", _speed(reply, stats, now, is_running=end is None)),
        ("speculation", _speculation(stats)),
        ("route", _route(facts, end)),
        ("memory", _memory(facts, reply, stats, vitals)),
        ("machine", _machine(vitals)),
    )
    return [Section(title, tuple(rows)) for title, rows in found if rows]


@dataclass(frozen=True, slots=True)
class Rounds:
    """Round by round, the newest last: draft tokens proposed (n_draft) and accepted."""

    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()


def last_rounds(reply: Reply | None, n_points: int = 30) -> Rounds:
    """The last rounds of a reply; nothing when nothing was drafted in any of them."""
    if reply is None:
        return Rounds()
    drafted = tuple(map(float, reply.drafted_by_round[-n_points:]))
    return Rounds(drafted, tuple(map(float, reply.accepted_by_round[-n_points:]))) if any(drafted) else Rounds()


def _speed(reply: Reply | None, stats: SpeculationStats | None, now: float, *, is_running: bool) -> Rows:
    """A reply that broke off has no pace any more: its last tokens may have come all at once."""
    pace = reply.tokens_per_s(now) if reply and is_running else None
    rate = stats.tokens_per_s if stats else pace
    ttft_s = stats.ttft_s if stats else reply.first_at - reply.started if reply and reply.first_at else None
    rows: Rows = [("now" if stats is None else "decode", format_rate(rate))] if rate else []
    if stats and stats.speedup_estimate is not None:
        rows.append(("vs target alone", f"{stats.speedup_estimate:.2f}x"))
    rows += [("first token", format_seconds(ttft_s))] if ttft_s is not None else []
    rows += [("tokens", str(reply.n_tokens))] if reply and reply.n_tokens else []
    return rows


def _speculation(stats: SpeculationStats | None) -> Rows:
    if stats is None:
        return []
    rows: Rows = []
    if stats.acceptance_rate is not None:
        rows.append(("accepted", f"{stats.acceptance_rate:.0%} of {stats.n_drafted}"))
    if stats.mean_accepted_length is not None:
        rows.append(("tokens a round", f"{stats.mean_accepted_length:.2f}"))
    if stats.n_rounds and stats.n_drafted:
        rows.append(("n_draft, mean", f"{stats.n_drafted / stats.n_rounds:.1f}"))
    rows += [(f"from {name}", str(n)) for name, n in stats.origins.items() if n]
    return rows


def _route(facts: FamilyFacts | None, end: ReplyEnd | None) -> Rows:
    if end and end.target:
        rows: Rows = [("target", end.target), ("draft", end.draft)]
    elif facts:
        rows = [("target", facts.target), ("draft", facts.draft)]
    else:
        return []
    rows += [("", reason) for reason in (end.reasons if end else ())]
    if end and end.stats and end.stats.n_draft_reason:
        rows.append(("", end.stats.n_draft_reason))
    notices = (*(facts.notices if facts else ()), *(end.notices if end else ()))
    return rows + [("", notice) for notice in dict.fromkeys(notices)]


def _memory(
    facts: FamilyFacts | None, reply: Reply | None, stats: SpeculationStats | None, vitals: Vitals | None
) -> Rows:
    rows: Rows = []
    used = stats.n_prompt + stats.n_generated if stats else _used_so_far(reply)
    if facts and facts.n_ctx and used:
        rows.append(("context", f"{used} of {facts.n_ctx} ({used / facts.n_ctx:.0%})"))
    rows += [(name, format_bytes(n_bytes)) for name, n_bytes in (facts.siblings if facts else ())]
    if vitals and vitals.n_process_bytes:
        rows.append(("this program", format_bytes(vitals.n_process_bytes)))
    return rows


def _used_so_far(reply: Reply | None) -> int | None:
    return reply.prefill[1] + reply.n_tokens if reply and reply.prefill else None


def _machine(vitals: Vitals | None) -> Rows:
    if vitals is None:
        return []
    rows: Rows = [("CPU", f"{vitals.cpu_percent:.0f} %")] if vitals.cpu_percent is not None else []
    rows += [("GPU", f"{vitals.gpu_percent:.0f} %")] if vitals.gpu_percent is not None else []
    rows += [("temperature", f"{vitals.temperature_c:.0f} °C")] if vitals.temperature_c is not None else []
    rows += [("power", f"{vitals.power_w:.1f} W")] if vitals.power_w is not None else []
    return rows
