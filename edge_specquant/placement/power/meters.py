"""Where a machine tells its power: INA rails of a Jetson, NVML, RAPL counters, the battery; the first that answers.

Takes a root folder and an NVML loader, which a test can replace; gives a PowerMeter or a reason. Reads only; knows
nothing of time: a sampler integrates.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..machine.file_tree import Readings

_MICRO = 1e-6
_INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "VIN_SYS_5V0", "VDD_IN_5V0")  # these carry all others


class PowerMeter(Protocol):
    """read() gives watts, or joules since some moment if counts_joules; None when it stopped answering."""

    source: str
    counts_joules: bool

    def read(self) -> float | None:
        """The figure of this moment."""
        ...


class InaMeter:
    """A Jetson's INA sensors: the input rail if there is one, else the sum of the rails. Watts."""

    counts_joules = False

    def __init__(self, readings: Readings, rails: Sequence[tuple[str, str, str]]) -> None:
        self._readings = readings
        self._rails = rails
        names = ", ".join(name for name, _, _ in rails)
        self.source = f"INA rail {names}" if len(rails) == 1 else f"INA rails {names}"

    def read(self) -> float | None:
        """Volts times amperes, summed."""
        watts = [self._one(volts, amperes) for _, volts, amperes in self._rails]
        known = [value for value in watts if value is not None]
        return sum(known) if len(known) == len(watts) else None

    def _one(self, volts: str, amperes: str) -> float | None:
        millivolts, milliamperes = self._readings.number(volts), self._readings.number(amperes)
        return None if millivolts is None or milliamperes is None else millivolts * milliamperes * _MICRO


class RaplMeter:
    """The kernel's powercap counters of all processor packages (and their DRAM). Joules, wrap-arounds undone."""

    counts_joules = True

    def __init__(self, readings: Readings, zones: Sequence[tuple[str, int]], names: Sequence[str]) -> None:
        self._readings = readings
        self._zones = zones
        self._last = [0] * len(zones)
        self._base = [0] * len(zones)
        self.source = f"RAPL {', '.join(names)}"

    def read(self) -> float | None:
        """Joules since boot or some wrap-around before the first reading."""
        total = 0
        for i, (zone, n_range) in enumerate(self._zones):
            value = self._readings.number(f"{zone}/energy_uj")
            if value is None:
                return None
            if value < self._last[i]:
                self._base[i] += n_range
            self._last[i] = value
            total += self._base[i] + value
        return total * _MICRO


class BatteryMeter:
    """What the battery gives while it discharges. Watts, of the whole machine, a few readings a minute."""

    counts_joules = False

    def __init__(self, readings: Readings, supply: str) -> None:
        self._readings = readings
        self._supply = supply
        self.source = f"battery {supply.rsplit('/', 1)[-1]}"

    def read(self) -> float | None:
        """None when it does not discharge."""
        if self._readings.text(f"{self._supply}/status") != "Discharging":
            return None
        microwatts = self._readings.number(f"{self._supply}/power_now")
        if microwatts is not None:
            return abs(microwatts) * _MICRO
        microamperes = self._readings.number(f"{self._supply}/current_now")
        microvolts = self._readings.number(f"{self._supply}/voltage_now")
        return None if microamperes is None or microvolts is None else abs(microamperes) * microvolts * _MICRO**2


class NvmlMeter:
    """All GPUs that NVML knows: their energy counters if they have them (joules), else their power (watts)."""

    def __init__(self, nvml: Any, handles: Sequence[Any], *, counts_joules: bool) -> None:
        self._nvml = nvml
        self._handles = handles
        self.counts_joules = counts_joules
        self.source = f"NVML, {len(handles)} GPU" + ("s" if len(handles) > 1 else "")

    def read(self) -> float | None:
        """Millijoules or milliwatts of every GPU, summed and scaled."""
        ask = (
            self._nvml.nvmlDeviceGetTotalEnergyConsumption if self.counts_joules else self._nvml.nvmlDeviceGetPowerUsage
        )
        try:
            return sum(int(ask(handle)) for handle in self._handles) / 1000
        except self._nvml.NVMLError:
            return None


def find_meter(
    root: Path = Path("/"), *, uses_gpu: bool = False, load_nvml: Callable[[], Any] | None = None
) -> tuple[PowerMeter | None, tuple[str, ...]]:
    """The meter that sees most of what a reply costs, and why others were passed over.

    A Jetson's rails come first; then the GPU if models lie on one; then RAPL, the GPU, the battery.
    """
    readings = Readings(root)
    reasons: list[str] = []
    gpu: Callable[[], PowerMeter | None] = lambda: _find_nvml(load_nvml or _import_nvml, reasons)  # noqa: E731
    rapl: Callable[[], PowerMeter | None] = lambda: _find_rapl(readings, reasons)  # noqa: E731
    ina: Callable[[], PowerMeter | None] = lambda: _find_ina(readings, reasons)  # noqa: E731
    battery: Callable[[], PowerMeter | None] = lambda: _find_battery(readings, reasons)  # noqa: E731
    for find in (ina, *((gpu, rapl) if uses_gpu else (rapl, gpu)), battery):
        meter = find()
        if meter is not None:
            return meter, tuple(reasons)
    return None, tuple(reasons)


def _find_ina(readings: Readings, reasons: list[str]) -> InaMeter | None:
    rails: list[tuple[str, str, str]] = []
    for hwmon in readings.folders("sys/class/hwmon/hwmon*"):
        if not (readings.text(f"{hwmon}/name") or "").startswith("ina"):
            continue
        for label in readings.folders(f"{hwmon}/in*_label"):
            number = "".join(char for char in label.rsplit("/", 1)[-1] if char.isdigit())
            rail = (
                readings.text(label) or f"rail {number}",
                f"{hwmon}/in{number}_input",
                f"{hwmon}/curr{number}_input",
            )
            if readings.number(rail[1]) is not None and readings.number(rail[2]) is not None:
                rails.append(rail)
    if not rails:
        reasons.append("no INA power sensor is readable")
        return None
    whole = [rail for rail in rails if rail[0] in _INPUT_RAILS]
    return InaMeter(readings, whole[:1] or rails)


def _find_rapl(readings: Readings, reasons: list[str]) -> RaplMeter | None:
    zones: list[tuple[str, int]] = []
    names: list[str] = []
    for zone in readings.folders("sys/class/powercap/intel-rapl:*"):
        name = readings.text(f"{zone}/name") or ""
        is_package = zone.count(":") == 1
        if not (name.startswith("package") and is_package) and name != "dram":
            continue  # cores and uncore are part of their package; psys counts packages again
        counter, n_range = readings.number(f"{zone}/energy_uj"), readings.number(f"{zone}/max_energy_range_uj")
        if counter is None:
            continue
        zones.append((zone, n_range or 1 << 32))
        names.append(name)
    if not zones:
        reasons.append("no RAPL counter is readable (most systems let only root read it)")
        return None
    return RaplMeter(readings, zones, names)


def _find_battery(readings: Readings, reasons: list[str]) -> BatteryMeter | None:
    for supply in readings.folders("sys/class/power_supply/*"):
        if readings.text(f"{supply}/type") == "Battery" and readings.text(f"{supply}/scope") != "Device":
            meter = BatteryMeter(readings, supply)
            if meter.read() is not None:
                return meter
            reasons.append(f"{meter.source} does not discharge or tells no power")
            return None
    reasons.append("no battery")
    return None


def _find_nvml(load: Callable[[], Any], reasons: list[str]) -> NvmlMeter | None:
    try:
        nvml = load()
    except (ImportError, OSError) as error:
        reasons.append(f"NVML: {error}")
        return None
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        reasons.append(f"NVML: {error}")
        return None
    for counts_joules in (True, False):
        meter = NvmlMeter(nvml, handles, counts_joules=counts_joules)
        if handles and meter.read() is not None:
            return meter
    reasons.append("NVML: no GPU tells its power")
    return None


def _import_nvml() -> Any:
    return importlib.import_module("pynvml")
