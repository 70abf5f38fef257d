"""The processor: model, cores, big cores, affinity, CPU quota, instruction sets; and how many threads to use.

Takes a tree, the cgroup quota and the engine's own feature line; gives CpuProfile. A thread count is the minimum of
what is physically there (big cores only: one slow core holds up every barrier), what the affinity mask leaves, and
what the quota pays for.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from .file_tree import Readings, parse_cpu_list

# A core below this share of the fastest core's capacity counts as little (A55 beside A76 is about 0.35).
_BIG_SHARE = 0.6

# MIDR part numbers of arm cores (arm's own documents); /proc/cpuinfo names no model there.
_ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd09": "Cortex-A73",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd41": "Cortex-A78",
    "0xd42": "Cortex-A78AE",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
}


@dataclass(frozen=True, slots=True)
class CpuProfile:
    """Counts of this machine; usable is the affinity mask, quota the cgroups' CPU time in CPUs (None: no limit).

    isa: the instruction sets the engine build really uses, in its own names; None when the engine was not asked.
    """

    model: str | None
    n_logical: int | None
    n_physical: int | None
    n_big: int | None
    usable: tuple[int, ...] | None
    n_usable_big: int | None
    quota: float | None
    isa: tuple[str, ...] | None
    features: tuple[str, ...] = ()

    @property
    def n_threads(self) -> int:
        """Threads for decoding, at least one."""
        known = [n for n in (self.n_usable_big, len(self.usable) if self.usable else None) if n]
        if self.quota is not None:
            known.append(int(self.quota))
        return max(1, min(known, default=self.n_physical or self.n_logical or 1))

    @property
    def threads_reason(self) -> str:
        """Why n_threads is what it is, in one clause."""
        n = self.n_threads
        if self.quota is not None and n == max(1, int(self.quota)):
            return f"the control group pays for {self.quota:g} CPUs"
        if self.usable and self.n_logical and len(self.usable) < self.n_logical:
            return f"the affinity mask leaves {len(self.usable)} of {self.n_logical} CPUs"
        if self.n_big and self.n_physical and self.n_big < self.n_physical:
            return f"{self.n_big} big cores of {self.n_physical}"
        if self.n_physical and self.n_logical and self.n_physical < self.n_logical:
            return f"{self.n_physical} physical cores of {self.n_logical} logical"
        return "one per core"


def read_cpu(readings: Readings, quota: float | None, engine_features: str | None) -> CpuProfile:
    """Reads /proc/cpuinfo, /proc/self/status and /sys/devices/system/cpu of the tree."""
    info = readings.text("proc/cpuinfo")
    if info is None:
        return _from_psutil(readings, quota, engine_features)
    online = _online(readings, info)
    usable = _affinity(readings, online)
    cores = {cpu: _core_of(readings, cpu) for cpu in online}
    big = _big(readings, online)
    return CpuProfile(
        model=_model(readings, info),
        n_logical=len(online) or None,
        n_physical=len(set(cores.values())) or None,
        n_big=len({cores[cpu] for cpu in big}) or None,
        usable=usable,
        n_usable_big=_count_usable(usable or online, big, cores),
        quota=quota,
        isa=parse_isa(engine_features),
        features=_features(info),
    )


def parse_isa(engine_features: str | None) -> tuple[str, ...] | None:
    """llama_print_system_info ('CPU : SSE3 = 1 | AVX2 = 0 | …') -> the names that are on."""
    if engine_features is None:
        return None
    return tuple(re.findall(r"(\w+) = [1-9]\d*", engine_features))


def _count_usable(usable: Iterable[int], big: frozenset[int], cores: dict[int, tuple[int, ...]]) -> int | None:
    """Physical big cores inside the affinity mask; when the mask leaves little ones only, those."""
    mask = [cpu for cpu in usable if cpu in cores]
    chosen = [cpu for cpu in mask if cpu in big] or mask
    return len({cores[cpu] for cpu in chosen}) or None


def _online(readings: Readings, info: str) -> tuple[int, ...]:
    text = readings.text("sys/devices/system/cpu/online")
    if text:
        try:
            return parse_cpu_list(text)
        except ValueError:
            readings.note("cpu.online", f"the list of CPUs reads {text[:40]!r}")
    return tuple(int(n) for n in re.findall(r"^processor\s*:\s*(\d+)", info, re.MULTILINE))


def _affinity(readings: Readings, online: tuple[int, ...]) -> tuple[int, ...] | None:
    status = readings.text("proc/self/status", "cpu.usable") or ""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    if not match:
        readings.note("cpu.usable", "proc/self/status names no Cpus_allowed_list")
        return None
    allowed = parse_cpu_list(match[1])
    return tuple(cpu for cpu in allowed if cpu in online) or None


def _core_of(readings: Readings, cpu: int) -> tuple[int, ...]:
    """The hyperthreads sharing this CPU's core, as its identity; the CPU alone when the tree does not say."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        text = readings.text(f"sys/devices/system/cpu/cpu{cpu}/topology/{name}")
        if text:
            return parse_cpu_list(text)
    return (cpu,)


def _big(readings: Readings, online: tuple[int, ...]) -> frozenset[int]:
    """CPUs of the fast kind: Intel's cpu_core list, else by capacity, else by maximum frequency, else all."""
    hybrid = readings.text("sys/devices/cpu_core/cpus")
    if hybrid:
        return frozenset(parse_cpu_list(hybrid)) & frozenset(online)
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        ranks = {cpu: readings.number(f"sys/devices/system/cpu/cpu{cpu}/{name}") for cpu in online}
        known = {cpu: rank for cpu, rank in ranks.items() if rank}
        if known and len(known) == len(online):
            fastest = max(known.values())
            return frozenset(cpu for cpu, rank in known.items() if rank >= _BIG_SHARE * fastest)
    return frozenset(online)


def _model(readings: Readings, info: str) -> str | None:
    match = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    if match:
        return match[1].strip()
    parts = sorted(set(re.findall(r"^CPU part\s*:\s*(\S+)", info, re.MULTILINE)), reverse=True)
    if parts:
        return " + ".join(_ARM_PARTS.get(part, f"arm part {part}") for part in parts)
    readings.note("cpu.model", "proc/cpuinfo names neither a model nor a part")
    return None


def _features(info: str) -> tuple[str, ...]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    return tuple(match[1].split()) if match else ()


def _from_psutil(readings: Readings, quota: float | None, engine_features: str | None) -> CpuProfile:
    """macOS, Windows: counts only."""
    isa = parse_isa(engine_features)
    if readings.root.as_posix().rstrip("/") not in {"", "C:"}:
        readings.note("cpu.model", "proc/cpuinfo: not there")
        return CpuProfile(None, None, None, None, None, None, quota, isa)
    import psutil

    try:
        physical = psutil.cpu_count(logical=False)
    except OSError as error:  # Linux in a container without /proc
        readings.note("cpu.model", f"{error.filename} cannot be read")
        return CpuProfile(None, os.cpu_count(), None, os.cpu_count(), None, os.cpu_count(), quota, isa)
    model = _sysctl("machdep.cpu.brand_string") or platform.processor() or None
    fast = _sysctl("hw.perflevel0.physicalcpu")
    n_big = int(fast) if fast and fast.isdigit() else physical
    if model is None:
        readings.note("cpu.model", "the system does not name it")
    return CpuProfile(model, psutil.cpu_count(), physical, n_big, None, n_big, quota, isa)


def _sysctl(name: str) -> str | None:
    """A value of macOS's sysctl; None elsewhere or when it does not answer."""
    if sys.platform != "darwin":
        return None
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
