"""Whether memory is running out while models are loaded, and what to give up first.

Takes a MemoryProfile (read again by `memory_now`), gives a verdict or a name. Reading is all it does to the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .cgroup import read_cgroup
from .file_tree import Readings
from .memory import MemoryProfile, read_memory

_PRESSURE_SHARE = 0.04  # less than this share free, and the system is about to swap or kill


def memory_now(root: Path = Path("/")) -> MemoryProfile:
    """Memory and control-group headroom at this moment; a fraction of a millisecond."""
    readings = Readings(root)
    return read_memory(readings, read_cgroup(readings), None)


def is_under_pressure(memory: MemoryProfile) -> bool:
    """Whether too little is left, on the host or in the control group. False when nothing is known."""
    pools = ((memory.n_available, memory.n_total), (memory.n_headroom, memory.n_limit))
    return any(free is not None and bool(total) and free < _PRESSURE_SHARE * (total or 0) for free, total in pools)


def first_to_drop(names_by_age: Iterable[str], *, draft: str | None, in_use: frozenset[str]) -> str | None:
    """What to free under pressure: the draft first (a reply goes on without it), then idle siblings, oldest first.

    names_by_age: what is loaded, least recently used first. A target in use is never named.
    """
    names = list(names_by_age)
    if draft is not None and draft in names:
        return draft
    return next((name for name in names if name not in in_use), None)
