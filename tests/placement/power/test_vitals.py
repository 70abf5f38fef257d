"""Gauges: what a machine tells is told, what it does not tell is absent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edge_specquant.placement.power.vitals import VitalsReader


class NvmlError(Exception):
    pass


def nvml(*, temperature: int | None) -> Any:
    def asked(*_: object) -> int:
        if temperature is None:
            raise NvmlError("Not Supported")
        return temperature

    def refused(*_: object) -> int:
        raise NvmlError("Not Supported")

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=73),
        nvmlDeviceGetTemperature=asked,
        nvmlDeviceGetTotalEnergyConsumption=refused,
        nvmlDeviceGetPowerUsage=lambda handle: 45_000,
    )


def missing() -> Any:
    raise ImportError("no pynvml")


def test_a_gpu_tells_load_heat_and_watts(tmp_path: Path) -> None:
    found = VitalsReader(tmp_path, lambda: nvml(temperature=61)).read()
    assert (found.gpu_percent, found.temperature_c, found.power_w) == (73.0, 61.0, 45.0)


def test_what_is_not_told_is_absent(tmp_path: Path) -> None:
    assert VitalsReader(tmp_path, lambda: nvml(temperature=None)).read().temperature_c is None
    bare = VitalsReader(tmp_path, missing).read()
    assert bare.gpu_percent is bare.temperature_c is bare.power_w is None


def test_a_counter_of_joules_becomes_watts(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("energy_uj", "1000000"), ("max_energy_range_uj", "9000000000")):
        (zone / name).write_text(text)
    reader = VitalsReader(tmp_path, missing)
    assert reader._power_w(10.0) is None
    (zone / "energy_uj").write_text("7000000")
    assert reader._power_w(12.0) == 3.0
