"""How long a forward takes and what a pair of siblings yields: a roofline until a calibration knows better.

Takes bytes per place, bandwidths and threads; gives seconds and tokens per second. Pure. The constants were fitted to
measured forwards of a 0.5B model at 1 to 8 tokens; they rank plans, they promise nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..machine.hardware import HardwareProfile
from .footprint import SplitFootprint

MAX_DRAFT_CONSIDERED = 8
MIN_GAIN = 1.03  # a pair must promise this much over the target alone

_BYTES_PER_S_PER_THREAD = 12e9  # one core cannot saturate the memory
_FIRST_TOKEN_SHARE = 2.7  # the first token of a batch costs this many times a further one in arithmetic
_SECONDS_PER_GPU_LAYER = 12e-6  # kernel launches
_SECONDS_PER_DEVICE = 0.1e-3  # hand-over of activations and synchronisation
_GPU_WIDTH_SLOPE = 0.04  # each further token on a GPU, share of the first
_SECONDS_PER_REMOTE_HOP = 1.5e-3
_TYPICAL_PAST = 1024  # tokens of KV cache a typical forward reads

# Arithmetic of one thread on further tokens, by what the CPU offers (its own flag names).
_FLOPS_PER_THREAD = (("avx512f", 65e9), ("avx2", 45e9), ("i8mm", 60e9), ("asimddp", 38e9))
_FLOPS_PER_THREAD_PLAIN = 8e9


class CostCurve(Protocol):
    """Measured seconds of one forward by its width (placement/cost/calibrate.py provides it)."""

    def decode_s(self, width: int) -> float:
        """Seconds of a forward of `width` tokens."""
        ...


def curve_key(variant: str, n_gpu_layers: int) -> str:
    """The name under which a measured curve is looked up: 'q4' on the CPU, 'q4@gpu' fully away, 'q4@12' split."""
    return variant if n_gpu_layers == 0 else f"{variant}@gpu" if n_gpu_layers < 0 else f"{variant}@{n_gpu_layers}"


@dataclass(frozen=True, slots=True)
class Roofline:
    """first_s seconds for one token, further_s for each more."""

    first_s: float
    further_s: float

    def decode_s(self, width: int) -> float:
        """Seconds of a forward of `width` tokens."""
        return self.first_s + (width - 1) * self.further_s


@dataclass(frozen=True, slots=True)
class Priced:
    """A curve in joules instead of seconds: everything that is reckoned per second with it is per joule."""

    curve: CostCurve
    watts: Callable[[int], float]

    def decode_s(self, width: int) -> float:
        """Joules of a forward of `width` tokens."""
        return self.curve.decode_s(width) * self.watts(width)


@dataclass(frozen=True, slots=True)
class Yield:
    """What a pair (or a target alone, n_draft 0) is expected to give."""

    tokens_per_s: float
    n_draft: int


def curve_for(
    curves: Mapping[str, CostCurve] | None, variant: str, n_gpu_layers: int, estimate: Roofline
) -> tuple[CostCurve, bool]:
    """The measured curve if there is one (True), else the estimate."""
    measured = (curves or {}).get(curve_key(variant, n_gpu_layers))
    return (measured, True) if measured is not None else (estimate, False)


def roofline(
    hardware: HardwareProfile,
    split: SplitFootprint,
    *,
    n_decode_bytes: int,
    n_parameters: int,
    n_ctx: int,
    n_read_bytes: int | None = None,
    n_further_bytes: int = 0,
) -> Roofline:
    """Time of one model spread over host and devices, which work one after the other.

    n_decode_bytes: the weights that a forward of one token reads, of n_read_bytes (None: all of them) that may be read;
    what the devices do not hold of them, the host reads. n_further_bytes: what each further token reads besides.
    """
    active = n_decode_bytes / n_read_bytes if n_read_bytes else 1.0
    kv_share = min(1.0, _TYPICAL_PAST / n_ctx)
    n_threads = hardware.cpu.n_threads
    n_host = max(0.0, n_decode_bytes - active * sum(device.n_weights for device in split.devices))
    host_rate = min(hardware.host_bandwidth.bytes_per_s, n_threads * _BYTES_PER_S_PER_THREAD)
    arithmetic_s = (
        2 * active * n_parameters / (n_threads * _flops_per_thread(hardware)) / n_decode_bytes
    )  # per byte of weights
    further_s = n_host * arithmetic_s
    first_s = (n_host + kv_share * split.host.n_kv) / host_rate + _FIRST_TOKEN_SHARE * further_s
    further_s += n_host / n_decode_bytes * n_further_bytes / host_rate
    for gpu, device, n_layers in zip(hardware.gpus, split.devices, split.n_layers_on, strict=False):
        if not n_layers:
            continue
        n_weights = active * device.n_weights
        seconds = (n_weights + kv_share * device.n_kv) / hardware.gpu_bandwidth(gpu).bytes_per_s
        if gpu.memory == "remote":  # nothing is known of it: taken for a machine like this one, behind a network
            first_s += seconds + _SECONDS_PER_REMOTE_HOP + _FIRST_TOKEN_SHARE * n_weights * arithmetic_s
            further_s += n_weights * arithmetic_s
            continue
        seconds += n_layers * _SECONDS_PER_GPU_LAYER + _SECONDS_PER_DEVICE
        first_s += seconds
        further_s += _GPU_WIDTH_SLOPE * seconds
    return Roofline(first_s, further_s)


def alone(target: CostCurve) -> Yield:
    """The target without a draft."""
    return Yield(1.0 / target.decode_s(1), 0)


def paired(target: CostCurve, draft: CostCurve, acceptance: float, n_draft: int | None = None) -> Yield:
    """The best fixed draft length, or n_draft: a round drafts n tokens one by one, then verifies n + 1 at once.

    Expected tokens a round: (1 - a^(n+1)) / (1 - a), Leviathan et al. 2023.
    """
    a = min(acceptance, 0.999)
    draft_s = draft.decode_s(1)

    def tokens_per_s(n: int) -> float:
        return (1 - a ** (n + 1)) / (1 - a) / (n * draft_s + target.decode_s(n + 1))

    best = n_draft or max(range(1, MAX_DRAFT_CONSIDERED + 1), key=tokens_per_s)
    return Yield(tokens_per_s(best), best)


def _flops_per_thread(hardware: HardwareProfile) -> float:
    features = set(hardware.cpu.features)
    return next((flops for name, flops in _FLOPS_PER_THREAD if name in features), _FLOPS_PER_THREAD_PLAIN)
