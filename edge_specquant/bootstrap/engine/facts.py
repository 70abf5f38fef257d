"""Looks at the machine and gives `Facts`: processor, compiler, GPUs. Decides nothing (`flags.py` does).

Every look is bounded in time and survives a missing file or program; what could not be learnt is None or empty.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .amx import AmxProbe, probe_amx
from .other_gpus import Rocm, Vulkan, find_rocm, find_vulkan

_SECONDS = 10.0
_NVCC_PLACES = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")
_SMI_PLACES = ("/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi")


@dataclass(frozen=True, slots=True)
class Cuda:
    """The CUDA compiler, if any, and whether a driver answers.

    architectures are compute capabilities without the dot ("87"); compilable are those this nvcc knows.
    """

    nvcc: str | None = None
    nvcc_on_path: bool = True
    nvcc_version: tuple[int, int] | None = None
    compilable: tuple[str, ...] = ()
    driver: bool = False
    driver_note: str = "no driver"
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice of build flags rests on."""

    system: str
    machine: str
    cpu_model: str = ""
    cpu_flags: frozenset[str] = frozenset()
    amx: AmxProbe = field(default_factory=lambda: AmxProbe("absent", "the processor has no AMX"))
    cuda: Cuda = field(default_factory=Cuda)
    jetson_model: str | None = None
    rocm: Rocm = field(default_factory=Rocm)
    vulkan: Vulkan = field(default_factory=Vulkan)


def gather() -> Facts:
    """Facts of this machine, in well under a second unless nvidia-smi hangs."""
    model, flags = read_cpu()
    jetson = _jetson_model()
    return Facts(
        system=platform.system(),
        machine=platform.machine().lower(),
        cpu_model=model,
        cpu_flags=flags,
        amx=probe_amx(flags),
        cuda=_cuda(jetson),
        jetson_model=jetson,
        rocm=find_rocm() if sys.platform == "linux" else Rocm(),
        vulkan=find_vulkan() if sys.platform == "linux" else Vulkan(),
    )


def read_cpu() -> tuple[str, frozenset[str]]:
    """Model name and feature flags of the first processor; flags are known on Linux only."""
    return parse_cpuinfo(_text("/proc/cpuinfo")) if sys.platform == "linux" else (platform.processor(), frozenset())


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Reads the first processor of /proc/cpuinfo (x86 'flags', Arm 'Features')."""
    first = text.split("\n\n", 1)[0]
    fields = dict(re.findall(r"^([^:\n\t]+?)[ \t]*:[ \t]*(.*)$", first, re.MULTILINE))
    model = fields.get("model name") or " ".join(
        fields[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in fields
    )
    return model.strip(), frozenset((fields.get("flags") or fields.get("Features") or "").split())


def parse_capabilities(text: str) -> tuple[str, ...]:
    """nvidia-smi's compute_cap column -> ('75', '86'); lines such as '[N/A]' are dropped."""
    found = re.findall(r"^\s*(\d+)\.(\d)\s*$", text, re.MULTILINE)
    return tuple(sorted({major + minor for major, minor in found}, key=int))


def _cuda(jetson_model: str | None) -> Cuda:
    on_path = shutil.which("nvcc")
    nvcc = on_path or next((place for place in _NVCC_PLACES if Path(place).is_file()), None)
    if nvcc is None:
        return Cuda()
    release = re.search(r"release (\d+)\.(\d+)", _output([nvcc, "--version"]))
    compilable = tuple(re.findall(r"compute_(\d+)\b", _output([nvcc, "--list-gpu-arch"])))
    driver, note, architectures = _driver(jetson_model)
    version = (int(release[1]), int(release[2])) if release else None
    return Cuda(nvcc, on_path is not None, version, compilable, driver, note, architectures)


def _driver(jetson_model: str | None) -> tuple[bool, str, tuple[str, ...]]:
    """Whether a driver answers, what was seen, and the capabilities it names."""
    if jetson_model:
        return True, f"Jetson ({jetson_model})", ()
    smi = shutil.which("nvidia-smi") or next((place for place in _SMI_PLACES if Path(place).is_file()), None)
    if smi:
        architectures = parse_capabilities(_output([smi, "--query-gpu=compute_cap", "--format=csv,noheader"]))
        if architectures:
            return True, "nvidia-smi answers", architectures
        if "GPU " in _output([smi, "-L"]):  # an old nvidia-smi does not know compute_cap
            return True, "nvidia-smi lists a GPU but not its architecture", ()
        return False, "nvidia-smi names no GPU", ()
    if Path("/proc/driver/nvidia/version").is_file():
        return True, "the kernel driver is loaded", ()
    return False, "no NVIDIA driver", ()


def _jetson_model() -> str | None:
    if not Path("/etc/nv_tegra_release").is_file():
        return None
    return _text("/proc/device-tree/model").strip("\0\n ") or "unknown model"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(command: Sequence[str]) -> str:
    """Standard output, or nothing when the program is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
