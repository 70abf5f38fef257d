"""An estimate of agreement is called one in the plan; a measured figure is not."""

from __future__ import annotations

from pathlib import Path

from edge_specquant.gguf.format.header import read_card
from edge_specquant.native.selftest.tiny import write_tiny_llama
from edge_specquant.placement.cost.sibling import Sibling
from edge_specquant.placement.plan.explain import fidelity


def test_only_measured_agreement_looks_measured(tmp_path: Path) -> None:
    card = read_card(write_tiny_llama(tmp_path / "tiny.gguf"))
    assert fidelity(Sibling("f16", card)) == "about 100% (by bits, not measured)"
    assert fidelity(Sibling("f16", card, measured_agreement=0.751)) == "75.1%"
