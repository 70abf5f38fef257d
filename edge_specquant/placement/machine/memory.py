"""How much memory there is and how much of it may be taken: /proc/meminfo, swap, page size, control groups.

Takes a tree and the cgroup limits, gives MemoryProfile. "Available" is the kernel's own estimate (MemAvailable), never
MemFree: on a machine that has run for a while nearly all memory is page cache.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .cgroup import CgroupLimits
from .file_tree import Readings


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """Bytes. n_limit: the lowest control-group limit, n_headroom: what it still allows; None: unknown or no limit."""

    n_total: int | None
    n_available: int | None
    n_swap_total: int | None
    n_swap_free: int | None
    page_size: int | None
    n_limit: int | None = None
    n_headroom: int | None = None

    @property
    def n_free(self) -> int | None:
        """What a new process may take: the minimum of the host's and every control group's."""
        known = [n for n in (self.n_available, self.n_headroom) if n is not None]
        return min(known, default=None)


def read_memory(readings: Readings, limits: CgroupLimits, page_size: int | None) -> MemoryProfile:
    """Reads /proc/meminfo of the tree; where there is none (macOS, Windows) asks psutil, on the real root only."""
    text = readings.text("proc/meminfo")
    if text is None:
        return _from_psutil(readings, limits, page_size)
    sizes = _parse(text)
    available = sizes.get("MemAvailable")
    if available is None:
        parts = [sizes[name] for name in ("MemFree", "Buffers", "Cached") if name in sizes]
        available = sum(parts) if parts else None
        readings.note("memory.n_available", "the kernel gives no MemAvailable; free + buffers + cached used instead")
    return MemoryProfile(
        n_total=sizes.get("MemTotal"),
        n_available=available,
        n_swap_total=sizes.get("SwapTotal"),
        n_swap_free=sizes.get("SwapFree"),
        page_size=page_size,
        n_limit=limits.n_memory,
        n_headroom=limits.n_headroom,
    )


def _parse(text: str) -> dict[str, int]:
    """'MemTotal:  16 kB' -> {'MemTotal': 16384}."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name.strip()] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return sizes


def _from_psutil(readings: Readings, limits: CgroupLimits, page_size: int | None) -> MemoryProfile:
    if readings.root.as_posix().rstrip("/") not in {"", "C:"}:
        readings.note("memory.n_total", "proc/meminfo: not there")
        return MemoryProfile(None, None, None, None, page_size, limits.n_memory, limits.n_headroom)
    import psutil

    try:
        ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    except OSError as error:  # Linux in a container without /proc
        readings.note("memory.n_available", f"{error.filename} cannot be read; only memory that nobody uses is counted")
        return _from_sysconf(limits, page_size)
    return MemoryProfile(ram.total, ram.available, swap.total, swap.free, page_size, limits.n_memory, limits.n_headroom)


def _from_sysconf(limits: CgroupLimits, page_size: int | None) -> MemoryProfile:
    """Total and unused memory by system call: less than what is available, because the page cache is not counted."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        pages = None
    total, unused = (n * page_size for n in pages) if pages and page_size else (None, None)
    return MemoryProfile(total, unused, None, None, page_size, limits.n_memory, limits.n_headroom)
