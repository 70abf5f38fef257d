"""The ceiling of decoding: bytes that must move for a token, over the bandwidth measured here.

Takes byte counts and a bandwidth, gives tokens per second. The bandwidth is what threads of this process really read
from memory, larger than any cache. Knows nothing of runs.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np

_LARGEST_BYTES = 384 << 20  # beyond any last-level cache
_N_PASSES = 3

_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class MeasuredBandwidth:
    """Bytes per second read from memory by n_threads threads together."""

    bytes_per_s: float
    n_threads: int
    n_bytes: int


def measure_bandwidth(n_threads: int, n_bytes: int = _LARGEST_BYTES, n_passes: int = _N_PASSES) -> MeasuredBandwidth:
    """The best of a few passes over n_bytes of memory, shared out among threads that look for the greatest byte.

    NumPy's maximum is vectorised and lets other threads run: it reads as fast as memory gives.
    """
    n_each = max(1, n_bytes // n_threads)
    parts = [np.ones(n_each, dtype=np.uint8) for _ in range(n_threads)]
    best_s = min(_pass_seconds(parts) for _ in range(n_passes))
    return MeasuredBandwidth(n_each * n_threads / best_s, n_threads, n_each * n_threads)


def ceiling(bytes_per_s: float, n_bytes_per_token: float) -> float:
    """Tokens per second if nothing but reading took time."""
    return bytes_per_s / n_bytes_per_token


def _pass_seconds(parts: list[_Bytes]) -> float:
    ready = threading.Barrier(len(parts) + 1)

    def read(part: _Bytes) -> None:
        ready.wait()
        part.max()

    threads = [threading.Thread(target=read, args=(part,), daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    ready.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun
