"""Which siblings must leave before a reply: those that the budget has no room for, and the draft when memory runs out.

Names and numbers in, names out; whoever holds the models frees them. The memory is read anew before each reply, which
takes a fraction of a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...placement.machine.memory import MemoryProfile
from ...placement.machine.memory_pressure import first_to_drop, is_under_pressure, memory_now
from ...units import format_bytes

MemoryNow = Callable[[], MemoryProfile]


def over_budget(
    names_by_age: Sequence[str], wanted: Collection[str], n_budget: int | None, n_bytes: Callable[[str], int]
) -> list[str]:
    """Whom to free, least recently used first, so that `wanted` fit beside the rest; those are never named."""
    if n_budget is None:
        return []
    total = sum(n_bytes(name) for name in {*names_by_age, *wanted})
    leaving: list[str] = []
    for name in names_by_age:
        if total <= n_budget:
            break
        if name not in wanted:
            leaving.append(name)
            total -= n_bytes(name)
    return leaving


class Relief:
    """Remembers which drafts were given up for want of memory, so that it is said once and can be taken back."""

    def __init__(self, memory: MemoryNow = memory_now) -> None:
        self._memory = memory
        self.drafts: set[str] = set()

    def look(
        self,
        names_by_age: Sequence[str],
        *,
        draft: str | None,
        in_use: frozenset[str],
        n_bytes: Callable[[str], int],
    ) -> tuple[str | None, str]:
        """(sibling to free now or None, sentence for the user or ""). draft: a sibling that nobody asked for by name.

        A draft that is not loaded yet is given up too. It may come back when it would leave twice the room it needs.
        """
        memory = self._memory()
        if not is_under_pressure(memory):
            free = memory.n_free
            self.drafts -= {name for name in self.drafts if free is None or free > 2 * n_bytes(name)}
            return None, ""
        is_news = draft is not None and draft not in self.drafts
        if draft is not None:
            self.drafts.add(draft)
        leaving = first_to_drop(names_by_age, draft=draft, in_use=in_use)
        if not is_news:
            return leaving, ""
        free_text = "little" if memory.n_free is None else format_bytes(memory.n_free)
        return leaving, f"memory is running out ({free_text} free): {draft} no longer drafts"
