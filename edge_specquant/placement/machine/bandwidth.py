"""How fast a memory is read: data sheet figures by name, and what is assumed when the name says nothing.

Takes the names a machine gives its board, CPU and GPUs; gives bytes per second with where they come from. Pure. Decode
speed is this figure divided by the bytes of the weights, until a calibration says better.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GB = 1_000_000_000

# A streaming read reaches about this share of the data sheet's figure.
_CPU_EFFICIENCY = 0.6
_GPU_EFFICIENCY = 0.75

# Data sheet GB/s; the first name found in the machine's own wins, so longer names come first.
_BOARDS = (
    ("Jetson AGX Thor", 273.0),
    ("Jetson AGX Orin", 204.8),
    ("Jetson Orin NX", 102.4),
    ("Orin Nano", 68.0),
    ("Jetson AGX Xavier", 136.5),
    ("Jetson Xavier NX", 59.7),
    ("Jetson Nano", 25.6),
    ("Raspberry Pi 5", 17.1),
    ("Raspberry Pi 4", 12.8),
    ("Rock 5", 34.0),
)
_CPUS = (
    ("Apple M1 Ultra", 800.0),
    ("Apple M2 Ultra", 800.0),
    ("Apple M1 Max", 400.0),
    ("Apple M2 Max", 400.0),
    ("Apple M3 Max", 400.0),
    ("Apple M4 Max", 546.0),
    ("Apple M4 Pro", 273.0),
    ("Apple M1 Pro", 200.0),
    ("Apple M2 Pro", 200.0),
    ("Apple M3 Pro", 150.0),
    ("Apple M4", 120.0),
    ("Apple M", 100.0),
)
_GPUS = (
    ("B200", 8000.0),
    ("H200", 4800.0),
    ("H100", 3350.0),
    ("A100", 1555.0),
    ("V100", 900.0),
    ("A6000", 768.0),
    ("A10", 600.0),
    ("A10G", 600.0),
    ("L40S", 864.0),
    ("L40", 864.0),
    ("L4", 300.0),
    ("T4", 320.0),
    ("5090", 1792.0),
    ("5080", 960.0),
    ("5070", 672.0),
    ("4090", 1008.0),
    ("4080", 717.0),
    ("4070", 504.0),
    ("4060", 272.0),
    ("4050", 192.0),
    ("3090", 936.0),
    ("3080", 760.0),
    ("3070", 448.0),
    ("3060", 360.0),
    ("3050", 192.0),
    ("2080", 448.0),
    ("2060", 336.0),
    ("1660", 192.0),
    ("1650", 128.0),
    ("7900", 800.0),
    ("6800", 512.0),
    ("Arc", 400.0),
)
_DEFAULT_X86 = 40.0
_DEFAULT_ARM = 15.0
_DEFAULT_GPU = 200.0


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second that a decode really gets, and the source of the figure."""

    bytes_per_s: float
    source: str


def host_bandwidth(board: str | None, cpu: str | None, features: tuple[str, ...]) -> Bandwidth:
    """The RAM's, by board, else by CPU, else assumed for the kind of processor."""
    for table, name in ((_BOARDS, board), (_CPUS, cpu)):
        found = _look_up(table, name)
        if found:
            return Bandwidth(found[1] * GB * _CPU_EFFICIENCY, f"{found[1]:g} GB/s ({found[0]}) at 60 %")
    is_arm = "asimd" in features or "neon" in features
    assumed = _DEFAULT_ARM if is_arm else _DEFAULT_X86
    return Bandwidth(assumed * GB * _CPU_EFFICIENCY, f"{assumed:g} GB/s assumed, at 60 %")


def gpu_bandwidth(description: str, memory: str) -> Bandwidth:
    """A card's own memory, by name; a remote device is taken for a slow card behind its link."""
    if memory == "remote":
        return Bandwidth(_DEFAULT_X86 * GB * _CPU_EFFICIENCY, f"{_DEFAULT_X86:g} GB/s assumed for a remote worker")
    found = next((entry for entry in _GPUS if re.search(rf"\b{entry[0]}\b", description)), None)
    if found:
        return Bandwidth(found[1] * GB * _GPU_EFFICIENCY, f"{found[1]:g} GB/s ({found[0]}) at 75 %")
    return Bandwidth(_DEFAULT_GPU * GB * _GPU_EFFICIENCY, f"{_DEFAULT_GPU:g} GB/s assumed, at 75 %")


def _look_up(table: tuple[tuple[str, float], ...], name: str | None) -> tuple[str, float] | None:
    return next((entry for entry in table if name and entry[0].lower() in name.lower()), None)
