"""How many bytes a plan may use, per pool: host memory, each GPU's own, or one pool for both where memory is unified.

Takes a HardwareProfile, gives a Budget. Pure. Counts what is free, never what is built in, and leaves a reserve.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...units import format_bytes
from ..cost.footprint import SplitFootprint
from ..machine.hardware import HardwareProfile

MIB = 1024**2

_HOST_RESERVE = 256 * MIB  # this program itself, and room for the system
_HOST_RESERVE_SHARE = 0.05
_GPU_RESERVE = 384 * MIB  # driver context, cuBLAS workspace, memory pool: none of it in the engine's own figures
_GPU_RESERVE_SHARE = 0.03
_ASSUMED_FREE = 2048 * MIB  # where the system does not say


@dataclass(frozen=True, slots=True)
class Budget:
    """Usable bytes. With unified True the devices have no bytes of their own: everything counts against `host`."""

    host: int
    devices: tuple[int, ...]
    unified: tuple[bool, ...]
    note: str

    def fits(self, *splits: SplitFootprint) -> bool:
        """Whether these models together stay within every pool."""
        return all(free >= 0 for free in self.left(*splits))

    def left(self, *splits: SplitFootprint) -> tuple[int, ...]:
        """Bytes left on the host and on each device with memory of its own (0 for unified ones)."""
        host = self.host - sum(split.host.n_total for split in splits)
        devices: list[int] = []
        for index, own in enumerate(self.devices):
            used = sum(split.devices[index].n_total for split in splits if index < len(split.devices))
            if self.unified[index]:
                host -= used
                devices.append(0)
            else:
                devices.append(own - used)
        return (host, *devices)


def budget_of(hardware: HardwareProfile) -> Budget:
    """Free memory less the reserve, pool by pool."""
    free = hardware.memory.n_free
    known = free if free is not None else _ASSUMED_FREE
    unified = tuple(gpu.memory == "host" for gpu in hardware.gpus)
    host = known - _HOST_RESERVE - int(_HOST_RESERVE_SHARE * known) - (_GPU_RESERVE if any(unified) else 0)
    devices = tuple(
        0 if shared else max(0, int((gpu.n_free or 0) * (1 - _GPU_RESERVE_SHARE)) - _GPU_RESERVE)
        for gpu, shared in zip(hardware.gpus, unified, strict=True)
    )
    return Budget(max(0, host), devices, unified, _note(hardware, free, unified))


def _note(hardware: HardwareProfile, free: int | None, unified: tuple[bool, ...]) -> str:
    if free is None:
        return f"the system does not say how much memory is free; {format_bytes(_ASSUMED_FREE)} assumed"
    memory = hardware.memory
    limited = memory.n_headroom is not None and memory.n_headroom == free
    source = "left by the control group" if limited else "available"
    shared = ", one pool for CPU and GPU" if any(unified) else ""
    return f"{format_bytes(free)} {source}{shared}"
