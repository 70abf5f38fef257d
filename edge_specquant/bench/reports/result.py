"""What a bench gives: a document for machines, tables and plots for people, and sentences that say what pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..measure.width_costs import WidthCost
from .summary import Summary
from .tables import Table

ROUTED = "by prompt"  # Summary.draft of a contestant whose siblings a policy chooses


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Bytes of one configuration at one context length."""

    name: str
    n_ctx: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Pictures:
    """What can be drawn; empty parts are not. agreement: of tokens with the reference, by contestant."""

    summaries: tuple[Summary, ...] = ()
    curves: Mapping[str, tuple[WidthCost, ...]] = field(default_factory=dict)
    floors_s: Mapping[str, float] = field(default_factory=dict)
    ceilings: Mapping[str, float | None] = field(default_factory=dict)
    memory: tuple[MemoryPoint, ...] = ()
    agreement: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """document: JSON-ready. verdict: sentences, the most important one first."""

    title: str
    document: dict[str, Any]
    tables: tuple[Table, ...]
    verdict: tuple[str, ...]
    pictures: Pictures = Pictures()


Say = Callable[[str], None]
