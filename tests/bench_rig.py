"""Helpers of the bench's tests: a runtime on fakes whose forwards cost known times of a clock only they advance."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from runtime_rig import TEMPLATE, whole_history

from edge_specquant.gguf.family.family import Family, Variant
from edge_specquant.native.fake import FakeContext, FakeModel
from edge_specquant.native.protocol import ContextParams, Logits
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.local import LocalEngine

Cost = Callable[[int], float]


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class CostlyContext(FakeContext):
    """A fake context whose decode of n tokens takes cost(n) of the clock."""

    def __init__(self, model: CostlyModel, params: ContextParams) -> None:
        super().__init__(model, params)
        self.cost, self.clock = model.cost, model.clock

    def decode(self, tokens: Sequence[int], n_past: int, n_rows: int = 1, *, seq: int = 0) -> Logits:
        self.clock.now_s += self.cost(len(tokens))
        return super().decode(tokens, n_past, n_rows, seq=seq)


class CostlyModel(FakeModel):
    """A fake model with costs."""

    __slots__ = ("clock", "cost")

    def __init__(self, next_logits: Callable[[Sequence[int]], Logits], cost: Cost, clock: Clock) -> None:
        super().__init__(next_logits, chat_template=TEMPLATE)
        self.cost, self.clock = cost, clock

    def context(self, params: ContextParams) -> CostlyContext:
        made = CostlyContext(self, params)
        self.contexts.append(made)
        return made


def costly_runtime(
    patch: pytest.MonkeyPatch, costs: Mapping[str, Cost], agree: Mapping[str, float]
) -> tuple[Runtime, Clock]:
    """A runtime whose siblings cost what `costs` says and agree with the first one as often as `agree` says."""
    clock = Clock()
    for module in ("stream", "caches.kv_cache"):
        name = f"edge_specquant.engine.{module}.time"
        patch.setattr(name, types.SimpleNamespace(perf_counter=clock, monotonic=clock))
    variants = {name: Variant(name, Path(f"{name}.gguf"), 1000, 4.0, {}, name, "0" * 64) for name in costs}

    def open_variant(name: str, progress: object) -> CostlyModel:
        del progress
        return CostlyModel(whole_history(1, agree[name]), costs[name], clock)

    options = EngineOptions(n_ctx=4096, snapshot_bytes=0)
    engine = LocalEngine(Family("fake", Path(), variants, None), options, open_variant)
    return Runtime(engine.family, options, engine), clock
