"""probe(): everything the plan needs to know about this machine, as one frozen HardwareProfile.

Takes a root folder, the engine's device list and NVML, all of which a test can replace; gives facts only. What cannot
be read is None and has a reason in `missing`. Nothing here hangs or raises for odd hardware.
"""

from __future__ import annotations

import os
import platform as platform_module
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .bandwidth import Bandwidth, gpu_bandwidth, host_bandwidth
from .battery import PowerProfile, read_power
from .board import JetsonProfile, read_board, read_jetson
from .cgroup import read_cgroup
from .cpu import CpuProfile, read_cpu
from .file_tree import Missing, Readings
from .gpu import Device, GpuProfile, join_gpus
from .memory import MemoryProfile, read_memory
from .nvml import read_nvidia


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One machine. `gpus` come in the engine's order; `missing` says why a field is None."""

    board: str | None
    system: str
    cpu: CpuProfile
    memory: MemoryProfile
    gpus: tuple[GpuProfile, ...]
    jetson: JetsonProfile | None
    power: PowerProfile
    missing: tuple[Missing, ...]

    @property
    def has_unified_memory(self) -> bool:
        """Whether a GPU here shares its bytes with the RAM, so that there is one budget only."""
        return any(gpu.memory == "host" for gpu in self.gpus)

    @property
    def host_bandwidth(self) -> Bandwidth:
        """How fast the CPU reads weights."""
        return host_bandwidth(self.board, self.cpu.model, self.cpu.features)

    def gpu_bandwidth(self, gpu: GpuProfile) -> Bandwidth:
        """How fast this GPU reads weights; one with the host's memory is as fast as the board's memory."""
        if gpu.memory == "host":
            return host_bandwidth(self.board, self.cpu.model, self.cpu.features)
        return gpu_bandwidth(gpu.description, gpu.memory)

    def as_json(self) -> dict[str, Any]:
        """Plain types for json.dumps, derived facts included."""
        data = asdict(self)
        data["cpu"].pop("features")
        data["cpu"]["n_threads"] = self.cpu.n_threads
        data["cpu"]["threads_reason"] = self.cpu.threads_reason
        data["memory"]["n_free"] = self.memory.n_free
        data["has_unified_memory"] = self.has_unified_memory
        data["missing"] = {item.field: item.reason for item in self.missing}
        return data


def probe(
    root: Path = Path("/"),
    *,
    devices: Iterable[Device] = (),
    engine_features: str | None = None,
    load_nvml: Callable[[], Any] | None = None,
    run_smi: Callable[[list[str]], str] | None = None,
    environment: Mapping[str, str] | None = None,
    page_size: int | None = None,
    system: str | None = None,
) -> HardwareProfile:
    """Reads the machine whose /proc, /sys and /etc lie under `root`.

    devices and engine_features come from the engine (native/library/devices.py, library.py). load_nvml gives a module
    with pynvml's interface, run_smi the output of a command; both default to the real ones.
    """
    readings = Readings(root)
    environment = os.environ if environment is None else environment
    limits = read_cgroup(readings)
    board = read_board(readings)
    jetson = read_jetson(readings, board)
    nvidia = read_nvidia(readings, load_nvml, run_smi)
    system = system or f"{sys.platform} {platform_module.machine()}"
    gpus = join_gpus(
        readings,
        devices,
        nvidia,
        unified_host=jetson is not None or system == "darwin arm64",
        cuda_visible=environment.get("CUDA_VISIBLE_DEVICES"),
    )
    return HardwareProfile(
        board=board,
        system=system,
        cpu=read_cpu(readings, limits.cpus, engine_features),
        memory=read_memory(readings, limits, page_size or _page_size()),
        gpus=gpus,
        jetson=jetson,
        power=read_power(readings),
        missing=readings.missing,
    )


def _page_size() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
