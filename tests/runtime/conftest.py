"""Fixtures of the runtime's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_specquant.gguf.convert.convert import convert, open_source, plan_conversion
from edge_specquant.gguf.family.family import Family


@pytest.fixture(scope="session")
def tiny_family(tiny_gguf: Path) -> Family:
    """f16, q8 and q4 of the tiny model, in the data folder of the session."""
    return convert(plan_conversion(open_source(str(tiny_gguf)), "tiny"))
