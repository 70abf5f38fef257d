"""What the control groups allow this process: CPU time and memory, the minimum over all ancestors.

Takes a tree (`Readings`), gives CgroupLimits. Handles v1, v2 and the hybrid of both, "max", containers with and
without their own namespace. Knows nothing of what the host itself has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from .file_tree import Readings

# v1 writes "no limit" as the largest page-aligned int64; anything near it means none.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """None where nothing limits. n_memory: the lowest limit; n_headroom: what may still be taken, page cache of the
    group itself counted as free. cpus: CPUs' worth of time per period."""

    cpus: float | None = None
    n_memory: int | None = None
    n_headroom: int | None = None


def read_cgroup(readings: Readings) -> CgroupLimits:
    """The limits of the process whose /proc/self the tree holds."""
    cpus: list[float] = []
    limits: list[int] = []
    headrooms: list[int] = []
    for version, controller, folder in _groups(readings):
        if controller == "cpu":
            quota = _cpus_v2(readings, folder) if version == 2 else _cpus_v1(readings, folder)
            if quota is not None:
                cpus.append(quota)
        else:
            found = _memory_v2(readings, folder) if version == 2 else _memory_v1(readings, folder)
            if found is not None:
                limits.append(found[0])
                headrooms.append(max(0, found[0] - found[1]))
    return CgroupLimits(min(cpus, default=None), min(limits, default=None), min(headrooms, default=None))


def _groups(readings: Readings) -> Iterator[tuple[int, str, str]]:
    """(version, "cpu" or "memory", folder) for the process's group and each ancestor that can be seen."""
    mounts = list(_mounts(readings))
    for line in (readings.text("proc/self/cgroup", "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for version, controllers, mount_root, mount_point in mounts:
            matches = version == 2 if names == "" else version == 1 and set(names.split(",")) & controllers
            if not matches:
                continue
            for folder in _ancestors(mount_point, mount_root, path):
                for controller in ("cpu", "memory"):
                    if version == 2 or controller in controllers:
                        yield version, controller, folder


def _mounts(readings: Readings) -> Iterator[tuple[int, set[str], str, str]]:
    """(version, controllers, root of the mount inside the hierarchy, mount point) from mountinfo, see proc(5)."""
    text = readings.text("proc/self/mountinfo")
    if text is None:
        yield 2, set(), "/", "/sys/fs/cgroup"
        yield from ((1, {name}, "/", f"/sys/fs/cgroup/{name}") for name in ("cpu", "memory"))
        return
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            yield 2, set(), fields[3], fields[4]
        elif kind[0] == "cgroup":
            controllers = set(kind[2].split(",")) if len(kind) > 2 else set()
            yield 1, controllers & {"cpu", "memory"}, fields[3], fields[4]


def _ancestors(mount_point: str, mount_root: str, path: str) -> Iterator[str]:
    """The group's folder and its parents up to the mount point.

    Without a namespace of its own a container sees the host's path; then only the mount point itself is visible.
    """
    point, inside = PurePosixPath(mount_point), PurePosixPath(path)
    try:
        relative = inside.relative_to(mount_root)
    except ValueError:
        relative = PurePosixPath()
    if ".." in relative.parts:
        relative = PurePosixPath()
    folder = point / relative
    while folder != point:
        yield str(folder)
        folder = folder.parent
    yield str(point)


def _cpus_v2(readings: Readings, folder: str) -> float | None:
    quota, _, period = (readings.text(f"{folder}/cpu.max") or "max").partition(" ")
    return _quota(quota, period or "100000")


def _cpus_v1(readings: Readings, folder: str) -> float | None:
    quota = readings.text(f"{folder}/cpu.cfs_quota_us")
    period = readings.text(f"{folder}/cpu.cfs_period_us")
    return _quota(quota, period) if quota and period else None


def _quota(quota: str, period: str) -> float | None:
    try:
        cpus = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def _memory_v2(readings: Readings, folder: str) -> tuple[int, int] | None:
    limits = [readings.number(f"{folder}/memory.{name}") for name in ("max", "high")]
    known = [limit for limit in limits if limit is not None]
    if not known:
        return None
    used = readings.number(f"{folder}/memory.current") or 0
    return min(known), used - _stat(readings, folder, "inactive_file")


def _memory_v1(readings: Readings, folder: str) -> tuple[int, int] | None:
    limit = readings.number(f"{folder}/memory.limit_in_bytes")
    if limit is None or limit >= _NO_LIMIT:
        return None
    used = readings.number(f"{folder}/memory.usage_in_bytes") or 0
    return limit, used - _stat(readings, folder, "total_inactive_file")


def _stat(readings: Readings, folder: str, key: str) -> int:
    for line in (readings.text(f"{folder}/memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0
