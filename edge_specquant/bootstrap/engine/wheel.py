"""Builds the engine's wheel with chosen flags, once a user: later clones take it from the cache.

Takes version, flags and a Python with pip; gives a wheel file. Knows nothing of the project's own packages.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sysconfig
import tempfile
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from ..commands import run_logged, say
from ..prerequisites import check_compilers, check_disk
from .facts import Facts
from .flags import EngineFlags

_DISTRIBUTION = "llama-cpp-python"
_BUILD_BYTES = 2_000_000_000
_STALE_S = 86_400.0
_BYTES_PER_COMPILER = 1 << 30  # the largest C++ files of llama.cpp; nvcc needs about twice that


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """One engine: which version, how built, for what machine."""

    version: str
    flags: EngineFlags
    machine: str

    @property
    def digest(self) -> str:
        """Names the build; equal digests are interchangeable. The wheel is tagged py3, so the Python plays no part."""
        parts = (self.version, self.flags.text, self.machine)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def describe_build(version: str, flags: EngineFlags, facts: Facts) -> EngineBuild:
    """The build this machine needs; a processor-bound build also carries the processor's name and features."""
    machine = [sysconfig.get_platform(), *platform.libc_ver()]
    if flags.depends_on_cpu:
        machine += [facts.cpu_model, *sorted(facts.cpu_flags)]
    return EngineBuild(version, flags, "\0".join(machine))


def cached_wheel(build: EngineBuild, cache: Path) -> Path | None:
    """The wheel kept for this build, if any and whole."""
    wheel = next(iter(sorted((cache / "engine" / build.digest).glob("*.whl"))), None)
    if wheel is None or _is_whole(wheel):
        return wheel
    say(f"    {wheel} is damaged: it is built again")
    drop_wheel(build, cache)
    return None


def drop_wheel(build: EngineBuild, cache: Path) -> None:
    """Forgets a wheel that turned out not to work."""
    shutil.rmtree(cache / "engine" / build.digest, ignore_errors=True)


def build_wheel(build: EngineBuild, cache: Path, python: Path) -> Path:
    """Builds into a temporary folder, moves the finished wheel into the cache. Raises SetupError."""
    disk = check_disk(cache, _BUILD_BYTES, "building the engine")
    say(f"  compilers: {check_compilers()}; {disk}")
    say(f"  building {_DISTRIBUTION} {build.version} from source: about 5 minutes on 2 cores, once for this user")
    engines = cache / "engine"
    engines.mkdir(parents=True, exist_ok=True)
    _sweep(engines)
    with tempfile.TemporaryDirectory(prefix="building-", dir=engines) as scratch:
        folder = Path(scratch)
        temporary = folder / "tmp"
        temporary.mkdir()
        command = [str(python), "-m", "pip", "wheel", "-v", "--no-cache-dir", "--no-deps"]
        command += ["--no-binary", _DISTRIBUTION, "-w", str(folder / "out"), f"{_DISTRIBUTION}=={build.version}"]
        # Everything pip unpacks goes below `scratch`, so an interrupted build leaves nothing anywhere.
        environment = {**pip_environment(), "CMAKE_ARGS": build.flags.text, "TMPDIR": str(temporary)}
        environment |= _parallel_level(build.flags)
        run_logged(command, cache / "logs" / "engine-build.log", doing="building the engine", env=environment)
        wheel = next((folder / "out").glob("*.whl"))
        target = engines / build.digest / wheel.name
        target.parent.mkdir(exist_ok=True)
        wheel.replace(target)
    return target


def _is_whole(wheel: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, zlib.error):
        return False


def _sweep(engines: Path) -> None:
    """Removes what a killed build left behind; a day is longer than any build that still runs."""
    for folder in engines.glob("building-*"):
        if time.time() - folder.stat().st_mtime > _STALE_S:
            shutil.rmtree(folder, ignore_errors=True)


def pip_environment() -> dict[str, str]:
    """The environment for pip: fewer retries than usual, so that a missing network is said in seconds."""
    return {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", **os.environ}


def _parallel_level(flags: EngineFlags) -> dict[str, str]:
    """Fewer compilers than cores where memory would run out (small boards)."""
    if "CMAKE_BUILD_PARALLEL_LEVEL" in os.environ or not hasattr(os, "sysconf"):
        return {}
    try:
        n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return {}
    each = _BYTES_PER_COMPILER * (2 if "-DGGML_CUDA=ON" in flags.cmake_args else 1)
    level = max(1, n_bytes // each)
    return {"CMAKE_BUILD_PARALLEL_LEVEL": str(level)} if level < (os.cpu_count() or 1) else {}
