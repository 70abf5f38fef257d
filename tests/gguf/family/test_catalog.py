"""The catalogue keeps its own rules: known architectures, hub ids, sizes and fits that follow from the parameters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from edge_specquant.gguf.checkpoint.arch import ARCHITECTURES
from edge_specquant.gguf.checkpoint.hub import parse_hub_id

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CATALOG = Path(__file__).parents[3] / "models" / "catalog.toml"
ENTRIES: list[dict[str, Any]] = tomllib.loads(CATALOG.read_text(encoding="utf-8"))["checkpoint"]
BITS = {"f16": 16.0, "q8": 8.5, "q6": 6.56, "q4": 4.5}
PAIRS = (("f16", True), ("q8", True), ("q8", False), ("q6", False), ("q4", False))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_every_entry_follows_the_rules_of_the_readme(entry: dict[str, Any]) -> None:
    assert parse_hub_id(entry["hub"]) == (entry["hub"], None)
    assert entry["architecture"] in {row.gguf_name for row in ARCHITECTURES}
    n_parameters = entry["million_parameters"] * 1e6
    for variant in ("f16", "q8", "q4"):
        assert entry[f"gb_{variant}"] == pytest.approx(n_parameters * BITS[variant] / 8e9, abs=0.006)
    for gigabytes in (4, 8, 16):
        assert entry[f"fits_{gigabytes}gb"] == best_fit(entry, 0.75 * gigabytes * 2**30)


def best_fit(entry: dict[str, Any], n_bytes_budget: float) -> str:
    n_parameters = entry["million_parameters"] * 1e6
    n_kv_bytes = 4 * entry["n_layer"] * entry["n_head_kv"] * entry["head_size"] * 4096
    for target, with_draft in PAIRS:
        n_bits = BITS[target] + (BITS["q4"] if with_draft else 0)
        if n_parameters * n_bits / 8 + n_kv_bytes * (1 + with_draft) + 0.5e9 <= n_bytes_budget:
            return f"{target} + q4" if with_draft else target
    return "-"


def test_names_are_unique_and_every_memory_size_has_a_choice() -> None:
    assert len({entry["name"] for entry in ENTRIES}) == len(ENTRIES)
    for gigabytes in (4, 8, 16):
        assert sum(entry[f"fits_{gigabytes}gb"] != "-" for entry in ENTRIES) >= 5
