"""The GPUs a model can be put on: the engine's device list joined with what NVML knows about the same card.

Takes engine devices, NVML entries and whether the host itself is a unified-memory machine; gives GpuProfile tuples in
the order in which the engine will use them (tensor_split counts in this order). Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .file_tree import Readings
from .nvml import NvmlGpu, visible_uuids


class Device(Protocol):
    """What is needed of an engine device (native/library/devices.py provides it)."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def n_free(self) -> int | None: ...
    @property
    def n_total(self) -> int | None: ...
    @property
    def device_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """One device for layers. memory: "own", "host" (integrated: the same bytes as the RAM) or "remote" (RPC)."""

    name: str
    description: str
    memory: str
    n_free: int | None
    n_total: int | None
    pci: str | None = None
    uuid: str | None = None
    driver: str | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    mig_enabled: bool | None = None


def join_gpus(
    readings: Readings,
    devices: Iterable[Device],
    nvidia: tuple[NvmlGpu, ...],
    *,
    unified_host: bool,
    cuda_visible: str | None = None,
) -> tuple[GpuProfile, ...]:
    """The usable devices in the engine's order: RPC first, then cards, integrated ones only when there is no card.

    Mirrors llama_prepare_model_devices: a card listed by two backends (CUDA and Vulkan) counts once.
    """
    listed = list(devices)
    cards = [device for device in listed if device.kind == "gpu"]
    unique = [d for i, d in enumerate(cards) if not d.device_id or d.device_id not in {c.device_id for c in cards[:i]}]
    integrated = [device for device in listed if device.kind == "igpu"]
    remote = [device for device in listed if device.kind == "rpc"]
    nvidia_devices = [d for d in (*unique, *integrated) if _is_nvidia(d)]
    visible = visible_uuids(cuda_visible, nvidia)
    profiles = [_profile(device, None, "remote") for device in remote]
    for device in unique or integrated:
        match = _match(device, nvidia, visible, nvidia_devices) if _is_nvidia(device) else None
        shares_host = device.kind == "igpu" or (unified_host and device.n_total is not None and not _has_own(match))
        profiles.append(_profile(device, match, "host" if shares_host else "own"))
    if nvidia and not unique and not nvidia_devices and visible != ():
        readings.note("gpu.engine", f"the engine was built without CUDA, so it cannot use {nvidia[0].name}")
    if visible == () and nvidia:
        readings.note("gpu.cuda_visible", f"CUDA_VISIBLE_DEVICES={cuda_visible!r} hides every NVIDIA GPU")
    return tuple(profiles)


def _match(
    device: Device, nvidia: tuple[NvmlGpu, ...], visible: tuple[str, ...] | None, engine_order: list[Device]
) -> NvmlGpu | None:
    """The NVML entry of an engine device: by PCI address, else by position among the visible, else the only one."""
    if device.device_id:
        return next((gpu for gpu in nvidia if gpu.pci == device.device_id), None)
    if visible:
        position = engine_order.index(device)
        uuid = visible[position] if position < len(visible) else None
        return next((gpu for gpu in nvidia if uuid and uuid in (gpu.uuid, *gpu.mig_uuids)), None)
    same_name = [gpu for gpu in nvidia if gpu.name == device.description]
    return same_name[0] if len(same_name) == 1 else nvidia[0] if len(nvidia) == len(engine_order) == 1 else None


def _has_own(match: NvmlGpu | None) -> bool:
    """A card with memory of its own reports it through NVML; a Jetson's GPU does not."""
    return match is not None and match.n_total is not None


def _is_nvidia(device: Device) -> bool:
    return device.name.upper().startswith("CUDA")


def _profile(device: Device, match: NvmlGpu | None, memory: str) -> GpuProfile:
    return GpuProfile(
        name=device.name,
        description=device.description,
        memory=memory,
        n_free=device.n_free,
        n_total=device.n_total,
        pci=device.device_id or (match.pci if match else None),
        uuid=match.uuid if match else None,
        driver=match.driver if match else None,
        power_w=match.power_w if match else None,
        power_limit_w=match.power_limit_w if match else None,
        mig_enabled=match.mig_enabled if match else None,
    )
