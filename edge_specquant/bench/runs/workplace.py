"""What every bench opens: the family, the machine's profile, a runtime, a meter of energy; and closes again.

Takes a family and options, gives a Workplace with byte counts and ceilings. Decides nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...engine.caches.kv_cache import KVCache
from ...gguf.family.family import Family
from ...gguf.nested import nested_open
from ...gguf.nested.nested import BASE, NESTED
from ...native.hooks.products import ENGINES_OWN, products_key
from ...native.protocol import ContextParams, Model
from ...params import MAX_DRAFT
from ...placement.cost.footprint import ContextShape, footprint
from ...placement.cost.sibling import Sibling, siblings_of
from ...placement.machine.hardware import HardwareProfile
from ...placement.machine.this_machine import probe_here
from ...placement.power.energy import EnergyMeter, EnergySampler, NoEnergy
from ...placement.power.meters import find_meter
from ...runtime import EngineOptions, Runtime
from ...runtime.local import LocalEngine
from ...runtime.logs import ENGINE_LOG, log_here
from ..measure.ceiling import MeasuredBandwidth, ceiling, measure_bandwidth
from ..measure.environment import record_environment
from ..measure.measurement import Contestant
from ..measure.width_costs import WIDTHS, WidthCost, measure_curves
from .local_runs import LocalRuns, Setting, alone

DEFAULT_N_CTX = 2048
Say = Callable[[str], None]


@dataclass
class Workplace:
    """Everything open. Bytes per sibling; bandwidth is None when it was not measured."""

    family: Family
    runtime: Runtime
    hardware: HardwareProfile
    local: LocalRuns
    siblings: dict[str, Sibling]
    environment: dict[str, Any]
    bandwidth: MeasuredBandwidth | None
    energy: EnergyMeter
    options: EngineOptions
    notes: list[str] = field(default_factory=list)

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the siblings."""
        return tuple(self.family.variants)

    def contestant(self, setting: Setting) -> Contestant:
        """A setting with its memory."""
        needs = {setting.target, *setting.draft.split("+")} & set(self.variants)
        needs |= set(self.variants) - {NESTED, BASE} if setting.route else set()
        shared = self.siblings[BASE].n_bytes if {NESTED, BASE} <= needs else 0
        return self.local.contestant(setting, sum(self.memory_bytes(name) for name in needs) - shared)

    def memory_bytes(self, name: str, n_ctx: int | None = None, type_k: str = "f16", type_v: str = "f16") -> int:
        """Weights, KV cache and buffers of one sibling, as the footprint has them; a nested one with its base."""
        if name == NESTED:
            return self.memory_bytes(BASE, n_ctx, type_k, type_v) + self.family.variant(NESTED).n_bytes
        n_ctx = n_ctx or self.options.n_ctx or DEFAULT_N_CTX
        shape = ContextShape(n_ctx=n_ctx, type_k=type_k, type_v=type_v, max_rows=1 + MAX_DRAFT)
        is_arm = "asimd" in self.hardware.cpu.features
        layers = self.options.n_gpu_layers or 0
        return footprint(self.siblings[name].card, shape, n_gpu_layers=layers, is_arm=is_arm).n_total

    def measure_again(self) -> None:
        """Keeps the better bandwidth: whatever else ran at the start must not lower the ceiling."""
        if self.bandwidth is not None:
            now = measure_bandwidth(self.bandwidth.n_threads)
            self.bandwidth = max(self.bandwidth, now, key=lambda found: found.bytes_per_s)

    def ceiling(self, n_bytes_per_token: float | None) -> float | None:
        """Tokens per second at which the memory's bandwidth ends it; None on GPUs or when unknown."""
        if self.bandwidth is None or n_bytes_per_token is None:
            return None
        return ceiling(self.bandwidth.bytes_per_s, n_bytes_per_token)


@contextlib.contextmanager
def open_workplace(
    family: Family, options: EngineOptions, *, say: Say, with_ceiling: bool = True
) -> Iterator[Workplace]:
    """Opens a family for measuring. Raises FamilyError, GGUFError, EngineError."""
    hardware = probe_here()
    say("measuring the memory's bandwidth")
    environment = record_environment(hardware, family, options.n_threads)
    on_gpu = bool(options.n_gpu_layers)
    bandwidth = measure_bandwidth(environment["n_threads"]) if with_ceiling and not on_gpu else None
    meter, reasons = find_meter(uses_gpu=on_gpu)
    siblings = {sibling.name: sibling for sibling in siblings_of(family)}
    with contextlib.ExitStack() as stack:
        energy: EnergyMeter = stack.enter_context(EnergySampler(meter)) if meter else NoEnergy()
        runtime = stack.enter_context(_runtime(family, options))
        decode_bytes = {name: sibling.n_decode_bytes for name, sibling in siblings.items()}
        if NESTED in family.variants and BASE in siblings:
            decode_bytes[NESTED] = decode_bytes[BASE] + family.variant(NESTED).n_bytes
        local = LocalRuns(runtime, decode_bytes=decode_bytes, energy=energy)
        notes = [] if meter else [f"energy is unknown: {'; '.join(reasons)}"]
        environment["energy_source"] = energy.source
        yield Workplace(family, runtime, hardware, local, siblings, environment, bandwidth, energy, options, notes)


@contextlib.contextmanager
def without_kernel(place: Workplace, targets: Sequence[str]) -> Iterator[list[Contestant]]:
    """Each target alone by the engine's own products, beside the target alone as it runs here; none where both are one.

    So a gain can be read against the stock engine too.
    """
    if products_key() == ENGINES_OWN or place.options.n_gpu_layers:
        yield []
        return
    with _runtime(place.family, replace(place.options, use_kernel=False)) as runtime:
        local = LocalRuns(runtime, energy=place.energy)
        plain = [(local.contestant(alone(target)), target) for target in targets]
        yield [replace(one, name=engine_alone(target), n_memory_bytes=None) for one, target in plain]


def engine_alone(target: str) -> str:
    """The name of a target alone by the engine's own products."""
    return f"{target} alone, engine's products"


def cost_curves(
    family: Family, options: EngineOptions, *, say: Say, widths: tuple[int, ...] = WIDTHS
) -> dict[str, tuple[WidthCost, ...]]:
    """Seconds by width of every sibling, all open at once."""
    with contextlib.ExitStack() as stack:
        caches = {}
        for name in family.variants:
            say(f"loading {name}")
            caches[name] = stack.enter_context(open_cache(family, name, options, max_rows=max(widths)))
        say("measuring forwards by width")
        return measure_curves(caches, widths=widths)


def open_sibling(family: Family, name: str, options: EngineOptions) -> Model:
    """A model of its own, outside any runtime; the siblings of a nested pair are computed as a runtime does."""
    return nested_open.open_sibling(
        family,
        name,
        n_gpu_layers=options.n_gpu_layers or 0,
        use_extra_bufts=options.use_extra_bufts,
        use_kernel=options.use_kernel,
    )


@contextlib.contextmanager
def open_cache(
    family: Family, name: str, options: EngineOptions, *, max_rows: int = 1, n_ctx: int = 512
) -> Iterator[KVCache]:
    """A cache over a sibling of its own, outside any runtime."""
    with contextlib.closing(open_sibling(family, name, options)) as model:
        n_batch = min(512, n_ctx)
        params = ContextParams(n_ctx=n_ctx, n_batch=n_batch, max_rows=max_rows, n_threads=options.n_threads)
        context = model.context(params)
        with contextlib.closing(context):
            yield KVCache(context)


def _runtime(family: Family, options: EngineOptions) -> Runtime:
    """In this process, on the family as it was opened."""
    engine = LocalEngine(family, options)
    notice = log_here(ENGINE_LOG, native=True)
    engine.notices += [notice] if notice else []
    return Runtime(family, options, engine)
