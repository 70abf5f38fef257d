"""NVIDIA's own view of its GPUs: driver, memory, power, MIG slices; from NVML, or from nvidia-smi when that is missing.

Takes an NVML module (pynvml's interface) or a command runner, gives NvmlGpu tuples and reasons. Every single value may
be "Not Supported" (Jetson, MIG, vGPU) and is then None. Knows nothing of the engine's device list.
"""

from __future__ import annotations

import csv
import importlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .file_tree import Readings, within

_TIMEOUT_S = 4.0
_SMI_FIELDS = (
    "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.free,power.draw,power.limit,mig.mode.current"
)


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One physical GPU. Bytes and watts; pci in the form '0000:01:00.0'; mig_uuids: the slices, if it is cut up."""

    index: int
    name: str
    uuid: str | None = None
    pci: str | None = None
    driver: str | None = None
    n_total: int | None = None
    n_free: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    mig_enabled: bool | None = None
    mig_uuids: tuple[str, ...] = ()


def read_nvidia(
    readings: Readings,
    load_nvml: Callable[[], Any] | None = None,
    run_smi: Callable[[list[str]], str] | None = None,
) -> tuple[NvmlGpu, ...]:
    """NVML first, nvidia-smi second; the reasons of what failed go into `readings`. Never hangs, never raises."""
    try:
        return within(_TIMEOUT_S, lambda: _from_nvml(readings, (load_nvml or _import_nvml)()))
    except Exception as error:  # a foreign library with its own error tree: every failure has the same cure
        readings.note("gpu.nvml", f"NVML: {_one_line(error)}")
    try:
        return tuple(parse_smi((run_smi or _run)(["nvidia-smi", f"--query-gpu={_SMI_FIELDS}", "--format=csv"])))
    except FileNotFoundError:
        readings.note("gpu.nvidia_smi", "nvidia-smi: not installed")
    except subprocess.TimeoutExpired:
        readings.note("gpu.nvidia_smi", f"nvidia-smi: no answer within {_TIMEOUT_S:g} s")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        readings.note("gpu.nvidia_smi", f"nvidia-smi: {_one_line(error)}")
    return ()


def parse_smi(text: str) -> Iterator[NvmlGpu]:
    """The CSV of nvidia-smi --query-gpu; '[N/A]' and '[Not Supported]' become None. Raises ValueError."""
    rows = list(csv.reader(text.strip().splitlines(), skipinitialspace=True))
    for row in rows[1:]:
        if len(row) != len(_SMI_FIELDS.split(",")):
            raise ValueError(f"a row of {len(row)} columns: {','.join(row)[:80]}")
        index, name, uuid, pci, driver, total, free, power, limit, mig = row
        yield NvmlGpu(
            index=int(index),
            name=name,
            uuid=_known(uuid),
            pci=normal_pci(_known(pci)),
            driver=_known(driver),
            n_total=_mib(total),
            n_free=_mib(free),
            power_w=_quantity(power),
            power_limit_w=_quantity(limit),
            mig_enabled={"enabled": True, "disabled": False}.get(mig.lower()),
        )


def visible_uuids(variable: str | None, gpus: tuple[NvmlGpu, ...]) -> tuple[str, ...] | None:
    """Which GPUs CUDA_VISIBLE_DEVICES names, in its order; None when it is not set.

    Mirrors the CUDA programming guide: indices, 'GPU-' UUIDs or unique beginnings of them, 'MIG-' slices; the list ends
    at the first entry that is not valid. Indices count in PCI order only with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if variable is None:
        return None
    chosen: list[str] = []
    for entry in (part.strip() for part in variable.split(",")):
        found = _resolve(entry, gpus)
        if found is None or found in chosen:
            break
        chosen.append(found)
    return tuple(chosen)


def normal_pci(text: str | None) -> str | None:
    """'00000000:01:00.0' (NVML) -> '0000:01:00.0' (the kernel, ggml), lower case."""
    if not text:
        return None
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _resolve(entry: str, gpus: tuple[NvmlGpu, ...]) -> str | None:
    if entry.isdigit():
        return next((gpu.uuid or f"index {gpu.index}" for gpu in gpus if gpu.index == int(entry)), None)
    names = [name for gpu in gpus for name in (gpu.uuid, *gpu.mig_uuids) if name]
    matches = [name for name in names if entry and name.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 and entry.upper().startswith(("GPU-", "MIG-")) else None


def _import_nvml() -> Any:
    return importlib.import_module("pynvml")


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True).stdout


def _from_nvml(readings: Readings, nvml: Any) -> tuple[NvmlGpu, ...]:
    nvml.nvmlInit()
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return tuple(_describe(readings, nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()


def _describe(readings: Readings, nvml: Any, index: int, driver: str | None) -> NvmlGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(field: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (nvml.NVMLError, AttributeError) as error:
            readings.note(f"gpu.{index}.{field}", f"NVML: {_one_line(error)}")
            return None

    memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    pci = ask("pci", lambda: nvml.nvmlDeviceGetPciInfo(handle))
    power = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    limit = ask("power_limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    mig = ask("mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    return NvmlGpu(
        index=index,
        name=_text(ask("name", lambda: nvml.nvmlDeviceGetName(handle))) or f"NVIDIA GPU {index}",
        uuid=_text(ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle))),
        pci=normal_pci(_text(pci.busId)) if pci is not None else None,
        driver=driver,
        n_total=int(memory.total) if memory is not None else None,
        n_free=int(memory.free) if memory is not None else None,
        power_w=power / 1000 if power is not None else None,
        power_limit_w=limit / 1000 if limit is not None else None,
        mig_enabled=bool(mig) if mig is not None else None,
        mig_uuids=_slices(nvml, handle) if mig else (),
    )


def _slices(nvml: Any, handle: Any) -> tuple[str, ...]:
    uuids: list[str] = []
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))) or "")
        except nvml.NVMLError:  # an empty slot
            continue
    return tuple(filter(None, uuids))


def _known(text: str) -> str | None:
    return None if not text or text.startswith("[") or text.upper() == "N/A" else text


def _quantity(text: str) -> float | None:
    known = _known(text)
    return float(known.split()[0]) if known else None


def _mib(text: str) -> int | None:
    amount = _quantity(text)
    return None if amount is None else int(amount * 1024**2)


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
