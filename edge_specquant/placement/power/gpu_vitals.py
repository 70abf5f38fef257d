"""Load and temperature of NVIDIA GPUs right now, from NVML; nothing where there is none.

Takes an NVML module (pynvml's interface), gives the busiest GPU's per cent and the hottest one's °C. Watts come from
`power_meters`, which knows every kind of machine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class GpuVitals:
    """Asks again and again. Without NVML or without a GPU, every answer is None."""

    def __init__(self, load_nvml: Callable[[], Any] | None = None) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            self._nvml = (load_nvml or _import_nvml)()
        except (ImportError, OSError):
            return
        try:
            self._nvml.nvmlInit()
            n_gpus = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(n_gpus)]
        except self._nvml.NVMLError:
            return

    def percent(self) -> float | None:
        """The busiest one."""
        return self._highest(lambda handle: self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    def temperature_c(self) -> float | None:
        """The hottest one."""
        return self._highest(lambda handle: self._nvml.nvmlDeviceGetTemperature(handle, 0))  # 0: the sensor of the chip

    def _highest(self, ask: Callable[[Any], float]) -> float | None:
        found: list[float] = []
        for handle in self._handles:
            try:
                found.append(float(ask(handle)))
            except self._nvml.NVMLError:  # not told by this GPU (MIG, Jetson, vGPU)
                continue
        return max(found, default=None)


def _import_nvml() -> Any:
    return importlib.import_module("pynvml")
