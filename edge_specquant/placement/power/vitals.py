"""How the machine feels right now: load, temperature, power. Cheap enough for every other second.

Gives Vitals; a figure the machine does not offer is None and stays None. Knows nothing of plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine.board import read_board, read_jetson
from ..machine.file_tree import Readings
from .gpu_vitals import GpuVitals
from .meters import find_meter

_GPU_LOADS = (
    "sys/devices/platform/gpu.0/load",
    "sys/devices/gpu.0/load",
    "sys/devices/platform/bus@0/17000000.gpu/load",
)


@dataclass(frozen=True, slots=True)
class Vitals:
    """Loads in per cent, the hottest sensor in °C, watts of what the best meter here sees, RAM in bytes."""

    cpu_percent: float | None = None
    gpu_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    n_process_bytes: int | None = None


class VitalsReader:
    """Reads again and again; keeps what it needs between readings (the CPU load is since the last one)."""

    def __init__(self, root: Path = Path("/"), load_nvml: Callable[[], Any] | None = None) -> None:
        self._root = root
        self._is_jetson = read_jetson(Readings(root), read_board(Readings(root))) is not None
        self._gpu = GpuVitals(load_nvml)
        self._meter = None if self._is_jetson else find_meter(root, uses_gpu=True, load_nvml=load_nvml)[0]
        self._energy: tuple[float, float] | None = None
        _cpu_percent()

    def read(self) -> Vitals:
        """The figures of this moment."""
        readings = Readings(self._root)
        jetson = read_jetson(readings, read_board(readings)) if self._is_jetson else None
        zones = [celsius for _, celsius in jetson.temperatures] if jetson else _temperatures(readings)
        hottest_gpu = self._gpu.temperature_c()
        zones += [hottest_gpu] if hottest_gpu is not None else []
        gpu_percent = _gpu_percent(readings)
        # The input rail carries all others; adding them up would count watts twice.
        rails = [rail.power_w for rail in jetson.rails] if jetson else []
        return Vitals(
            cpu_percent=_cpu_percent(),
            gpu_percent=self._gpu.percent() if gpu_percent is None else gpu_percent,
            temperature_c=max(zones, default=None),
            power_w=max(rails, default=None) if jetson else self._power_w(time.monotonic()),
            n_process_bytes=_process_bytes(),
        )

    def _power_w(self, now: float) -> float | None:
        """Watts; of a counter of joules, the mean since the last reading."""
        value = self._meter.read() if self._meter is not None else None
        if value is None or self._meter is None or not self._meter.counts_joules:
            return value
        before, self._energy = self._energy, (now, value)
        if before is None or now <= before[0]:
            return None
        return (value - before[1]) / (now - before[0])


def _temperatures(readings: Readings) -> list[float]:
    names = readings.folders("sys/class/thermal/thermal_zone*")
    found = (readings.number(f"{name}/temp") for name in names)
    return [value / 1000 for value in found if value is not None and 0 < value < 150_000]


def _gpu_percent(readings: Readings) -> float | None:
    """A Jetson's GPU load, in tenths of a per cent where the kernel tells it."""
    for name in _GPU_LOADS:
        load = readings.number(name)
        if load is not None:
            return load / 10
    return None


def _cpu_percent() -> float | None:
    import psutil

    try:
        return float(psutil.cpu_percent(interval=None))
    except (OSError, psutil.Error):
        return None


def _process_bytes() -> int | None:
    import psutil

    try:
        process = psutil.Process()
        return sum(int(one.memory_info().rss) for one in (process, *process.children()))
    except (OSError, psutil.Error):
        return None
