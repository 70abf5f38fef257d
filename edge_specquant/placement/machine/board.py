"""Boards: the device tree's name, and a Jetson's software, power mode and sensors.

Takes a tree, gives a name and a JetsonProfile. Knows nothing of memory sizes or plans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .file_tree import Readings

# L4T release -> JetPack, from NVIDIA's Jetson Linux archive; the first matching beginning counts.
_JETPACK = (
    ("38.", "7"),
    ("36.4.3", "6.2"),
    ("36.4.4", "6.2.1"),
    ("36.4.7", "6.2.1"),
    ("36.4", "6.1"),
    ("36.3", "6.0"),
    ("36.2", "6.0 DP"),
    ("35.6", "5.1.4"),
    ("35.5", "5.1.3"),
    ("35.4", "5.1.2"),
    ("35.3", "5.1.1"),
    ("35.2", "5.1"),
    ("35.1", "5.0.2"),
    ("32.", "4"),
)


@dataclass(frozen=True, slots=True)
class Rail:
    """A supply rail of an INA sensor."""

    name: str
    power_w: float


@dataclass(frozen=True, slots=True)
class JetsonProfile:
    """What is special about a Jetson; rails and temperatures (°C by zone) may be empty."""

    l4t: str | None
    jetpack: str | None
    power_mode: str | None
    rails: tuple[Rail, ...] = ()
    temperatures: tuple[tuple[str, float], ...] = ()


def read_board(readings: Readings) -> str | None:
    """The board's name ('NVIDIA Jetson Orin Nano …', 'Raspberry Pi 5 …') or the PC's product name; None if unnamed."""
    for name in ("proc/device-tree/model", "sys/firmware/devicetree/base/model"):
        model = readings.text(name)
        if model:
            return model
    product = readings.text("sys/class/dmi/id/product_name", "board")
    return product or None


def read_jetson(readings: Readings, board: str | None) -> JetsonProfile | None:
    """None when this is no Jetson."""
    release = readings.text("etc/nv_tegra_release")
    if release is None and not re.search(r"jetson|tegra", board or "", re.IGNORECASE):
        return None
    l4t = _l4t(release)
    if l4t is None:
        readings.note("jetson.l4t", "etc/nv_tegra_release: not there or not understood")
    return JetsonProfile(
        l4t=l4t,
        jetpack=next((name for start, name in _JETPACK if l4t and l4t.startswith(start)), None),
        power_mode=_power_mode(readings),
        rails=_rails(readings),
        temperatures=_temperatures(readings),
    )


def _l4t(release: str | None) -> str | None:
    """'# R36 (release), REVISION: 4.3, …' -> '36.4.3'."""
    match = re.search(r"R(\d+).*?REVISION:\s*([\d.]+)", release or "")
    return f"{match[1]}.{match[2]}" if match else None


def _power_mode(readings: Readings) -> str | None:
    """The nvpmodel mode by name, from its status and configuration files (the tool itself needs root)."""
    status = readings.text("var/lib/nvpmodel/status", "jetson.power_mode")
    match = re.search(r"pmode:0*(\d+)", status or "")
    if not match:
        return None
    modes = readings.text("etc/nvpmodel.conf") or ""
    name = re.search(rf"<\s*POWER_MODEL\s+ID={match[1]}\s+NAME=(\S+?)\s*>", modes)
    return name[1] if name else f"mode {match[1]}"


def _rails(readings: Readings) -> tuple[Rail, ...]:
    rails: list[Rail] = []
    for hwmon in readings.folders("sys/class/hwmon/hwmon*"):
        if not (readings.text(f"{hwmon}/name") or "").startswith("ina"):
            continue
        for label in readings.folders(f"{hwmon}/in*_label"):
            number = re.sub(r"\D", "", label.rsplit("/", 1)[-1])
            millivolts = readings.number(f"{hwmon}/in{number}_input", slow=True)
            milliamperes = readings.number(f"{hwmon}/curr{number}_input", slow=True)
            if millivolts is not None and milliamperes is not None:
                rails.append(Rail(readings.text(label) or f"rail {number}", millivolts * milliamperes / 1e6))
    if not rails:
        readings.note("jetson.rails", "sys/class/hwmon: no INA power sensor is readable")
    return tuple(rails)


def _temperatures(readings: Readings) -> tuple[tuple[str, float], ...]:
    zones: list[tuple[str, float]] = []
    for zone in readings.folders("sys/class/thermal/thermal_zone*"):
        millidegrees = readings.number(f"{zone}/temp", slow=True)  # -256000: the zone is powered down
        if millidegrees is not None and millidegrees > -100_000:
            zones.append((readings.text(f"{zone}/type") or zone.rsplit("/", 1)[-1], millidegrees / 1000))
    return tuple(zones)
