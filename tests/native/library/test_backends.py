"""Backends: what is compiled in is left alone, what lies in a folder is loaded, no fitting CPU variant is an error."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from edge_specquant.errors import EngineMissingError
from edge_specquant.native.library.backends import cpu_function, cpu_variant, load_backends
from edge_specquant.native.library.library import build_id, ggml, library_folder


def stand_in(n_compiled_in: int, *, fits: bool) -> tuple[types.SimpleNamespace, list[bytes]]:
    """libggml as an engine with dynamic backends has it, and the folders it was told to load."""
    loaded: list[bytes] = []
    library = types.SimpleNamespace(
        ggml_backend_reg_count=lambda: n_compiled_in,
        ggml_backend_load_all_from_path=lambda folder: loaded.append(folder),
        ggml_backend_dev_by_type=lambda _kind: 1 if n_compiled_in or (fits and loaded) else None,
        ggml_backend_dev_backend_reg=lambda device: device,
    )
    return library, loaded


def test_variants_are_loaded_from_the_bindings_folder() -> None:
    library, loaded = stand_in(0, fits=True)
    load_backends(library, Path("/somewhere/lib"))
    assert loaded == [b"/somewhere/lib"]


def test_what_is_compiled_in_stays_alone() -> None:
    library, loaded = stand_in(1, fits=False)
    load_backends(library, Path("/somewhere/lib"))
    assert loaded == []


def test_a_processor_without_a_fitting_variant_is_told_what_to_do() -> None:
    library, _ = stand_in(0, fits=False)
    with pytest.raises(EngineMissingError, match=r"none of the engine's CPU variants.*scripts/quickstart --rebuild"):
        load_backends(library, Path("/somewhere/lib"))


def test_the_engine_here_offers_its_cpu_functions() -> None:
    assert cpu_function(ggml(), "ggml_backend_set_n_threads")
    assert cpu_function(ggml(), "no_such_function") is None
    variant = cpu_variant(ggml())
    several = list(library_folder().glob("*ggml-cpu-*"))
    assert (variant is not None) == bool(several)
    assert variant is None or f"CPU variant {variant};" in build_id()
