"""Helpers of the runtime's tests: an engine on fakes, and what plain greedy decoding of a fake would say."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_specquant.engine.events import TokenEvent
from edge_specquant.gguf.family.family import Family, Variant
from edge_specquant.native.fake import N_BYTES, FakeModel
from edge_specquant.native.protocol import Logits
from edge_specquant.params import SamplingParams
from edge_specquant.placement.cost.footprint import Footprint, SplitFootprint
from edge_specquant.placement.plan.plan_types import ModelPlacement, PlacementPlan
from edge_specquant.runtime.facade import Runtime
from edge_specquant.runtime.local import LocalEngine
from edge_specquant.runtime.options import EngineOptions
from edge_specquant.runtime.reply import Reply

GREEDY = SamplingParams(temperature=0)
TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def whole_history(seed: int, agree: float = 1.0) -> Callable[[Sequence[int]], Logits]:
    """Logits that depend on every token before them, so that one wrong KV cell changes the answer.

    Printable ASCII only. `agree` below 1 departs from seed's answer that often, as a draft does.
    """

    def next_logits(history: Sequence[int]) -> Logits:
        key = zlib.crc32(np.asarray(history, dtype=np.int32).tobytes(), seed)
        row = np.full(N_BYTES + 4, -30.0, dtype=np.float32)
        if agree < 1 and (key >> 8) % 1000 >= agree * 1000:
            key += 1
        row[97 + key % 26] = 5.0
        return row

    return next_logits


def greedy_fake(prompt: Sequence[int], n: int, seed: int = 1) -> list[int]:
    """The n ids that plain greedy decoding of `whole_history(seed)` gives."""
    next_logits, history = whole_history(seed), list(prompt)
    for _ in range(n):
        history.append(int(next_logits(history).argmax()))
    return history[len(prompt) :]


class FakeEngine(LocalEngine):
    """A LocalEngine whose siblings are fakes; `models` are those loaded last, by variant, `loads` all in order.

    model_type makes them; make_plan and memory are LocalEngine's.
    """

    def __init__(
        self,
        options: EngineOptions | None = None,
        seed: int = 1,
        agree: float = 0.8,
        *,
        names: Sequence[str] = ("f16", "q4"),
        model_type: type[FakeModel] = FakeModel,
        **machine: Any,
    ) -> None:
        self.models: dict[str, FakeModel] = {}
        self.loads: list[str] = []
        variants = {name: Variant(name, Path(f"{name}.gguf"), 1000, 4.0, {}, name, "0" * 64) for name in names}

        def open_variant(name: str, progress: object) -> FakeModel:
            del progress
            logits = whole_history(seed, 1.0 if name == "f16" else agree)
            self.models[name] = model_type(logits, chat_template=TEMPLATE)
            self.loads.append(name)
            return self.models[name]

        family = Family("fake", Path(), variants, None)
        super().__init__(family, options or EngineOptions(calibrate=False, n_ctx=4096), open_variant, **machine)


def fake_plan(target: str, draft: str | None, *others: str, n_ctx: int = 4096, **fields: Any) -> PlacementPlan:
    """A plan on the CPU, each sibling with 1000 bytes of weights and 100 of KV cells."""

    def placed(name: str) -> ModelPlacement:
        return ModelPlacement(name, f"{name}.gguf", 0, (), SplitFootprint(Footprint(1000, 100), (), ()))

    plan = PlacementPlan(
        target=placed(target),
        draft=placed(draft) if draft else None,
        n_ctx=n_ctx,
        type_k="f16",
        type_v="f16",
        n_threads=1,
        n_threads_batch=1,
        use_mmap=True,
        use_mlock=False,
        residents=(target,),
        others=tuple(placed(name) for name in others),
        n_budget=1 << 30,
        n_draft=0,
        predicted_tokens_per_s=None,
        predicted_alone_tokens_per_s=None,
        is_calibrated=False,
        objective="quality",
    )
    return replace(plan, **fields)


def fake_runtime(options: EngineOptions | None = None, **fake: Any) -> tuple[Runtime, FakeEngine]:
    """A runtime over a FakeEngine, and that engine."""
    engine = FakeEngine(options, **fake)
    return Runtime(engine.family, engine.options, engine), engine


def drained(reply: Reply) -> tuple[str, list[int], TokenEvent]:
    """Text, ids and last event of a reply."""
    events = list(reply)
    ids = [event.token_id for event in events if event.token_id is not None]
    return "".join(event.text for event in events), ids, events[-1]
