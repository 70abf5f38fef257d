"""`bench states` on models of a few kilobytes: each way that a kind has, and what its states take."""

from __future__ import annotations

import pytest

from edge_specquant.bench.benches.state_cost import PLAIN, WAYS, bench_states
from edge_specquant.native.protocol import DEFAULT_N_ROLLBACK
from edge_specquant.native.selftest.tiny_kinds import Sizes


@pytest.mark.parametrize("kind", ["delta", "mamba2"])
def test_each_way_is_measured_on_the_same_rounds(kind: str) -> None:
    result = bench_states(
        lambda _: None, kind=kind, sizes=Sizes(), n_draft=3, acceptance=0.6, n_rounds=8, repeats=2, n_threads=1
    )
    rows = {row["way"]: row for row in result.document["ways"]}
    assert list(rows) == [way for way in WAYS if kind == "delta" or way not in (WAYS[0], WAYS[2])]
    assert rows[PLAIN]["tokens"] == 1.0 and rows["saved and restored"]["tokens"] > 1.0
    assert all(row["round_s"] > 0 for row in rows.values())
    if kind == "delta":
        assert rows["rolled back"]["tokens"] == rows["saved and restored"]["tokens"]
        assert rows["rolled back"]["n_bytes"] == (1 + DEFAULT_N_ROLLBACK) * rows[PLAIN]["n_bytes"]
    assert len(result.tables[0].rows) == len(rows)
