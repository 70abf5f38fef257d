"""A data folder of its own for every test, and tiny models made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_specquant.native.selftest.tiny import write_tiny_llama


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """EDGE_SPECQUANT_HOME in a folder whose name has spaces, an accent and an apostrophe."""
    folder = tmp_path / "it's a dâta folder"
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 256: K-quants fit."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", n_embd=256, tied=True)


@pytest.fixture(scope="session")
def tiny_narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 288: K-quants do not fit. Untied."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "narrow.gguf", n_embd=288)
