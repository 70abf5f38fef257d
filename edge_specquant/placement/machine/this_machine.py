"""This machine, with the engine asked: probe() with the engine's own device list and instruction sets.

Takes RPC endpoints, gives a HardwareProfile. A missing or unsafe engine leaves the devices empty and a reason behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import EngineMissingError
from ...native.library.devices import EngineDevice, add_rpc, list_devices
from ...native.library.library import system_info
from .file_tree import Missing
from .hardware import HardwareProfile, probe


def probe_here(rpc: Sequence[str] = (), *, ask_engine: bool = True) -> HardwareProfile:
    """Reads this machine. rpc: 'host:port' of workers whose devices join the list.

    ask_engine False leaves the engine's libraries unloaded (they may be unsafe here). Raises UsageError and EngineError
    for a worker that cannot be used.
    """
    devices: tuple[EngineDevice, ...] = ()
    features = problem = None
    if ask_engine:
        try:
            for endpoint in rpc:
                add_rpc(endpoint)
            devices, features = list_devices(), system_info()
        except EngineMissingError as error:
            problem = str(error)
    else:
        problem = "the engine was not asked, because it is not safe here"
    profile = probe(devices=devices, engine_features=features)
    if problem is None:
        return profile
    return replace(profile, missing=(*profile.missing, Missing("engine.devices", problem)))


def split_endpoints(text: str | None) -> tuple[str, ...]:
    """'a:1, b:2' -> ('a:1', 'b:2')."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def usable_threads() -> int:
    """Threads a decode should use: physical or big cores, within affinity and control groups. Milliseconds."""
    return probe_here(ask_engine=False).cpu.n_threads
