"""Joules from fake sysfs trees are within two per cent of the truth; unknown stays unknown."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_specquant.placement.power.energy import EnergySampler, EnergyTrace, NoEnergy, average_watts
from edge_specquant.placement.power.meters import PowerMeter, find_meter

STEP_S = 0.05
WITHIN = 0.02


def _watts(moment_s: float) -> float:
    """A load that swings, as decoding does."""
    return 12.0 + 5.0 * math.sin(2 * math.pi * moment_s / 3.1)


def _true_joules(start_s: float, end_s: float) -> float:
    """The integral of _watts."""
    wave = 2 * math.pi / 3.1
    return 12.0 * (end_s - start_s) + 5.0 / wave * (math.cos(wave * start_s) - math.cos(wave * end_s))


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n", encoding="utf-8")


def _sampled(meter: PowerMeter, update: Callable[[float], None], seconds: float) -> EnergySampler:
    """Readings every STEP_S of a clock that the test moves."""
    now = [0.0]
    sampler = EnergySampler(meter, STEP_S, clock=lambda: now[0])
    for i in range(round(seconds / STEP_S) + 1):
        now[0] = i * STEP_S
        update(now[0])
        assert sampler.sample()
    return sampler


SPANS = ((0.0, 10.0), (1.23, 4.56), (7.01, 7.49))


def _check(sampler: EnergySampler) -> None:
    for start, end in SPANS:
        found = sampler.joules(start, end)
        assert found == pytest.approx(_true_joules(start, end), rel=WITHIN)
        assert average_watts(found, end - start) == pytest.approx(_true_joules(start, end) / (end - start), rel=WITHIN)


def test_jetson_rails_count_the_input_only(tmp_path: Path) -> None:
    hwmon = tmp_path / "sys/class/hwmon/hwmon3"
    _write(hwmon / "name", "ina3221")
    for number, name in ((1, "VDD_IN"), (2, "VDD_CPU_GPU_CV"), (3, "VDD_SOC")):
        _write(hwmon / f"in{number}_label", name)

    def update(moment_s: float) -> None:
        for number, share in ((1, 1.0), (2, 0.5), (3, 0.2)):
            _write(hwmon / f"in{number}_input", 5000)
            _write(hwmon / f"curr{number}_input", round(share * _watts(moment_s) / 5 * 1000))

    update(0.0)
    meter, _ = find_meter(tmp_path)
    assert meter is not None and meter.source == "INA rail VDD_IN" and not meter.counts_joules
    _check(_sampled(meter, update, 10.0))


def test_rails_without_an_input_rail_add_up(tmp_path: Path) -> None:
    hwmon = tmp_path / "sys/class/hwmon/hwmon0"
    _write(hwmon / "name", "ina3221")
    for number, name in ((1, "GPU"), (2, "CPU")):
        _write(hwmon / f"in{number}_label", name)
        _write(hwmon / f"in{number}_input", 4000)
        _write(hwmon / f"curr{number}_input", 1000)
    meter, _ = find_meter(tmp_path)
    assert meter is not None and meter.read() == pytest.approx(8.0)


def test_rapl_packages_and_memory_with_wrap_around(tmp_path: Path) -> None:
    powercap = tmp_path / "sys/class/powercap"
    zones = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "psys"}
    n_range = 60_000_000  # wraps after 60 J, so within the test
    for zone, name in zones.items():
        _write(powercap / zone / "name", name)
        _write(powercap / zone / "max_energy_range_uj", n_range)

    def update(moment_s: float) -> None:
        total = _true_joules(0.0, moment_s) if moment_s else 0.0
        for zone, share in (
            ("intel-rapl:0", 0.75),
            ("intel-rapl:0:0", 0.6),
            ("intel-rapl:0:1", 0.25),
            ("intel-rapl:1", 9),
        ):
            _write(powercap / zone / "energy_uj", (59_000_000 + int(share * total * 1e6)) % n_range)

    update(0.0)
    meter, _ = find_meter(tmp_path)
    assert meter is not None and meter.source == "RAPL package-0, dram" and meter.counts_joules
    sampler = _sampled(meter, update, 10.0)
    _check(sampler)


@pytest.mark.parametrize("has_power", [True, False])
def test_a_discharging_battery(tmp_path: Path, has_power: bool) -> None:
    battery = tmp_path / "sys/class/power_supply/BAT0"
    _write(battery / "type", "Battery")
    _write(battery / "status", "Discharging")
    _write(battery / "voltage_now", 12_000_000)

    def update(moment_s: float) -> None:
        if has_power:
            _write(battery / "power_now", round(_watts(moment_s) * 1e6))
        else:
            _write(battery / "current_now", -round(_watts(moment_s) / 12 * 1e6))  # some drivers are signed

    update(0.0)
    meter, _ = find_meter(tmp_path, load_nvml=_no_nvml)
    assert meter is not None and meter.source == "battery BAT0"
    _check(_sampled(meter, update, 10.0))
    _write(battery / "status", "Charging")
    assert meter.read() is None


class _NvmlError(Exception):
    pass


def _nvml(now: list[float], has_counter: bool) -> types.SimpleNamespace:
    def energy(_handle: int) -> int:
        if not has_counter:
            raise _NvmlError("Not Supported")
        return 7_000 + round(_true_joules(0.0, now[0]) * 500) if now[0] else 7_000  # two GPUs, half each

    return types.SimpleNamespace(
        NVMLError=_NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetPowerUsage=lambda _handle: round(_watts(now[0]) * 500),
    )


@pytest.mark.parametrize("has_counter", [True, False])
def test_gpus_by_counter_or_by_power(tmp_path: Path, has_counter: bool) -> None:
    now = [0.0]
    meter, _ = find_meter(tmp_path, uses_gpu=True, load_nvml=lambda: _nvml(now, has_counter))
    assert meter is not None and meter.source == "NVML, 2 GPUs" and meter.counts_joules is has_counter
    _check(_sampled(meter, lambda moment_s: now.__setitem__(0, moment_s), 10.0))


def _no_nvml() -> types.SimpleNamespace:
    raise ImportError("No module named 'pynvml'")


def test_a_machine_that_tells_nothing_is_unknown(tmp_path: Path) -> None:
    meter, reasons = find_meter(tmp_path, load_nvml=_no_nvml)
    assert meter is None
    assert [reason.split(" ")[0] for reason in reasons] == ["no", "no", "NVML:", "no"]
    assert NoEnergy().joules(0, 1) is None and average_watts(None, 3) is None and average_watts(3, 0) is None


def test_spans_outside_the_readings_are_unknown() -> None:
    trace = EnergyTrace()
    assert trace.joules(0, 1) is None
    trace.add_watts(1.0, 10.0)
    trace.add_watts(2.0, 10.0)
    assert trace.joules(1.0, 2.0) == pytest.approx(10.0)
    assert trace.joules(0.5, 1.5) is None and trace.joules(1.5, 2.5) is None


def test_a_meter_that_falls_silent_ends_the_trace() -> None:
    class Silent:
        source, counts_joules = "silent", False
        n_left = 3

        def read(self) -> float | None:
            self.n_left -= 1
            return 5.0 if self.n_left >= 0 else None

    with EnergySampler(Silent(), 0.001) as sampler:
        assert sampler.joules(0.0, 1e12) is None
