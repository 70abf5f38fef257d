"""Looks for GPUs that are not NVIDIA's and for what building for them needs: ROCm and Vulkan. Linux only, milliseconds.

Takes a root folder, gives Rocm and Vulkan. Decides nothing (`flags.py` does). A device is one that the kernel drives:
a renderer made of software has none, and is never found here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VENDORS = {"0x8086": "Intel", "0x1002": "AMD", "0x10de": "NVIDIA"}
_HEADERS = "usr/include/vulkan/vulkan.h"
_SPIRV = "usr/include/spirv/unified1/spirv.hpp"
_LOADERS = ("usr/lib/*/libvulkan.so", "usr/lib*/libvulkan.so")
_DRIVERS = ("usr/share/vulkan/icd.d/*.json", "etc/vulkan/icd.d/*.json")

Which = Callable[[str], "str | None"]


@dataclass(frozen=True, slots=True)
class Rocm:
    """AMD's compiler and whether its kernel driver is there."""

    hipcc: str | None = None
    device: bool = False


@dataclass(frozen=True, slots=True)
class Vulkan:
    """device: the vendor of a real GPU, None without one; missing: what building and running needs and is not here."""

    device: str | None = None
    missing: tuple[str, ...] = ()


def find_rocm(root: Path = Path("/"), which: Which = shutil.which) -> Rocm:
    """hipcc on PATH or in /opt/rocm, and the device of the kernel driver."""
    place = root / "opt/rocm/bin/hipcc"
    return Rocm(which("hipcc") or (str(place) if place.is_file() else None), (root / "dev/kfd").exists())


def find_vulkan(root: Path = Path("/"), which: Which = shutil.which) -> Vulkan:
    """The first render node with a known vendor, and Debian's names of the packages that lack."""
    nodes = sorted((root / "sys/class/drm").glob("renderD*/device/vendor"))
    device = next((VENDORS[word] for node in nodes if (word := _text(node)) in VENDORS), None)
    if device is None:
        return Vulkan()
    there = {
        "libvulkan-dev": (root / _HEADERS).is_file() and any(any(root.glob(place)) for place in _LOADERS),
        "glslc": which("glslc") is not None,
        "spirv-headers": (root / _SPIRV).is_file(),
        "mesa-vulkan-drivers": any(any(root.glob(place)) for place in _DRIVERS),
    }
    return Vulkan(device, tuple(name for name, found in there.items() if not found))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
