"""Joules between two moments, from whatever meter this machine has; sampled in a thread, integrated afterwards.

Two kinds of meters: power in watts (integrated by the trapezoid rule) and counters of joules (interpolated). Knows
nothing of replies or models; power_meters.py knows where the figures come from.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from .meters import PowerMeter

INTERVAL_S = 0.05


class EnergyMeter(Protocol):
    """Knows the joules of a span that has passed."""

    source: str | None

    def joules(self, start_s: float, end_s: float) -> float | None:
        """Joules between two readings of the clock; None when unknown."""
        ...


class NoEnergy:
    """A machine that does not tell."""

    source: str | None = None

    def joules(self, start_s: float, end_s: float) -> float | None:
        """Unknown."""
        del start_s, end_s
        return None


class EnergyTrace:
    """Joules used up to each moment, as points of a rising line. Pure: fed by a sampler or by a test."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._joules: list[float] = []
        self._last_watts: float | None = None

    def add_watts(self, moment_s: float, watts: float) -> None:
        """A reading of power."""
        total = 0.0
        if self._last_watts is not None:
            total = self._joules[-1] + 0.5 * (self._last_watts + watts) * (moment_s - self._times[-1])
        self._last_watts = watts
        self._append(moment_s, total)

    def add_joules(self, moment_s: float, total_j: float) -> None:
        """A reading of a counter, already free of wrap-arounds."""
        self._append(moment_s, total_j)

    def joules(self, start_s: float, end_s: float) -> float | None:
        """None unless readings surround the span."""
        start, end = self._at(start_s), self._at(end_s)
        return None if start is None or end is None else end - start

    @property
    def last_s(self) -> float:
        """The moment of the newest reading."""
        return self._times[-1] if self._times else float("-inf")

    def _append(self, moment_s: float, total_j: float) -> None:
        self._times.append(moment_s)
        self._joules.append(total_j)

    def _at(self, moment_s: float) -> float | None:
        times = self._times
        if not times or not times[0] <= moment_s <= times[-1]:
            return None
        right = max(1, bisect.bisect_left(times, moment_s))
        if len(times) == 1:
            return self._joules[0]
        span = times[right] - times[right - 1]
        share = (moment_s - times[right - 1]) / span if span > 0 else 0.0
        return self._joules[right - 1] + share * (self._joules[right] - self._joules[right - 1])


class EnergySampler:
    """Reads a meter every interval while open. A meter that stops answering ends the trace: later spans are unknown."""

    def __init__(
        self, meter: PowerMeter, interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.source: str | None = meter.source
        self._meter = meter
        self._interval_s = interval_s
        self._clock = clock
        self._trace = EnergyTrace()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)

    def __enter__(self) -> EnergySampler:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(2 * self._interval_s + 1)

    def sample(self) -> bool:
        """Takes one reading; False when the meter gave none."""
        value = self._meter.read()
        if value is None:
            return False
        with self._lock:
            add = self._trace.add_joules if self._meter.counts_joules else self._trace.add_watts
            add(self._clock(), value)
        return True

    def joules(self, start_s: float, end_s: float) -> float | None:
        """Waits for the reading after the span's end, at most a few intervals."""
        for _ in range(4):
            with self._lock:
                if self._trace.last_s >= end_s:
                    return self._trace.joules(start_s, end_s)
            if not self._thread.is_alive():
                return None
            self._stop.wait(self._interval_s)
        return None

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            if not self.sample():
                return


def average_watts(joules: float | None, seconds: float | None) -> float | None:
    """None when either is unknown or no time passed."""
    return joules / seconds if joules is not None and seconds else None
