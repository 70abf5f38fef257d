"""Fixtures of the engine tests: the tiny family, and rigs that are freed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_rig import Rig

from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import Model
from edge_specquant.native.quantizer import quantize
from edge_specquant.native.selftest.tiny_kinds import KINDS, write_tiny_kind


@pytest.fixture(scope="session")
def tiny_models(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NativeModel]]:
    """The tiny Llama as f16, q8 and q4, loaded."""
    folder = tmp_path_factory.mktemp("tiny-family")
    paths = {"f16": tiny_gguf}
    for name, ftype in (("q8", "Q8_0"), ("q4", "Q4_0")):
        paths[name] = folder / f"{name}.gguf"
        quantize(tiny_gguf, paths[name], ftype=ftype)
    models = {name: NativeModel(path, use_extra_bufts=True) for name, path in paths.items()}
    yield models
    for model in models.values():
        model.close()


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[NativeModel, NativeModel]]]:
    """Each kind as f32 and as its 4-bit sibling, loaded."""
    folder = tmp_path_factory.mktemp("kinds")
    made: dict[str, tuple[NativeModel, NativeModel]] = {}
    for kind in KINDS:
        path = write_tiny_kind(folder / f"{kind}.gguf", kind, dtype="F32")
        quantize(path, folder / f"{kind}-q4.gguf", ftype="Q4_0")
        model, draft = (NativeModel(each, use_extra_bufts=True) for each in (path, folder / f"{kind}-q4.gguf"))
        made[kind] = model, draft
    yield made
    for pair in made.values():
        for model in pair:
            model.close()


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    """Makes rigs and frees their contexts."""
    made: list[Rig] = []

    def make(target: Model, draft: Model | None = None, **context: int) -> Rig:
        made.append(Rig(target, draft, **context))
        return made[-1]

    yield make
    for each in made:
        each.close()
