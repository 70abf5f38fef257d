"""Whether the machine runs on battery or mains, and how full the battery is. Takes a tree, gives a PowerProfile."""

from __future__ import annotations

from dataclasses import dataclass

from .file_tree import Readings


@dataclass(frozen=True, slots=True)
class PowerProfile:
    """on_mains None: unknown (a desktop usually tells nothing). battery in per cent."""

    on_mains: bool | None = None
    battery_percent: int | None = None


def read_power(readings: Readings) -> PowerProfile:
    """Battery and mains from /sys/class/power_supply; peripherals' batteries (scope Device) do not count."""
    mains: list[bool] = []
    percent: int | None = None
    charging: bool | None = None
    for supply in readings.folders("sys/class/power_supply/*"):
        kind = readings.text(f"{supply}/type")
        if kind == "Battery" and readings.text(f"{supply}/scope") != "Device":
            percent = readings.number(f"{supply}/capacity")
            charging = readings.text(f"{supply}/status") not in {"Discharging", None}
        elif kind in {"Mains", "USB"}:
            online = readings.number(f"{supply}/online")
            mains.extend([bool(online)] if online is not None else [])
    on_mains = any(mains) if mains else charging
    if on_mains is None:
        readings.note("power.on_mains", "sys/class/power_supply: names no supply")
    return PowerProfile(on_mains, percent)
