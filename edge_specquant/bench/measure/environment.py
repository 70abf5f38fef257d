"""Where a bench ran: engine build, processor, GPUs, threads, power mode, load, versions, files. Plain JSON values.

What cannot be read is None. Names no host and no user.
"""

from __future__ import annotations

import os
import platform
import time
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

from ...gguf.family.family import Family
from ...native.hooks.products import products_key
from ...native.library.library import build_id
from ...placement.machine.hardware import HardwareProfile
from ...placement.power.vitals import VitalsReader


def record_environment(hardware: HardwareProfile, family: Family, n_threads: int) -> dict[str, Any]:
    """The record of this moment with the family's files; takes a tenth of a second to measure the load."""
    return {
        **record_hardware(hardware, n_threads),
        "family": family.name,
        "files": {
            name: {
                "file": variant.path.name,
                "n_bytes": variant.n_bytes,
                "bits_per_weight": variant.bits_per_weight,
                "main_type": variant.main_type,
                "sha256": variant.sha256,
            }
            for name, variant in family.variants.items()
        },
    }


def record_hardware(hardware: HardwareProfile, n_threads: int) -> dict[str, Any]:
    """The record of this moment, no model in it."""
    vitals = VitalsReader()
    time.sleep(0.1)
    now = vitals.read()
    cpu = hardware.cpu
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "program": _version("edge-specquant"),
        "engine": build_id(),
        "products": products_key(),
        "engine_package": _version("llama-cpp-python"),
        "python": platform.python_version(),
        "system": hardware.system,
        "board": hardware.board,
        "cpu": cpu.model,
        "n_cores": cpu.n_physical,
        "n_threads": n_threads or cpu.n_threads,
        "isa": list(cpu.isa or ()),
        "gpus": [gpu.description for gpu in hardware.gpus],
        "power_mode": hardware.jetson.power_mode if hardware.jetson else None,
        "governor": _governor(),
        "on_mains": hardware.power.on_mains,
        "load_average": _load_average(),
        "cpu_percent_before": now.cpu_percent,
        "temperature_c": now.temperature_c,
        "n_memory_bytes": hardware.memory.n_total,
    }


def environment_line(environment: dict[str, Any]) -> str:
    """One line for the head of a table."""
    gpus = f", {' + '.join(environment['gpus'])}" if environment.get("gpus") else ", no GPU"
    cores = environment.get("n_cores")
    parts = [
        f"{environment.get('cpu') or 'unknown processor'}{gpus}",
        f"{cores} cores, {environment['n_threads']} threads" if cores else f"{environment['n_threads']} threads",
        f"engine {environment['engine'].split(';')[0]}",
        environment["date"][:10],
    ]
    load = environment.get("load_average")
    return ", ".join([*parts, *([f"load before {load:.1f}"] if load is not None else [])])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        return None


def _governor() -> str | None:
    from ...placement.machine.file_tree import Readings

    return Readings().text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
