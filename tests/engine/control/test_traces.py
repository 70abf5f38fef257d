"""Traces: what goes in comes out, a cut line costs one round, and rounds of the loop arrive as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_rig import Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.engine.control.traces import TraceFile, read_traces
from edge_specquant.engine.signals import Signals
from edge_specquant.engine.stats import RoundRecord
from edge_specquant.errors import FileError
from edge_specquant.native.fake import FakeModel, hashed

SIZES = {"f16": 1000, "q4": 300}
seconds = st.floats(0, 1e3, allow_nan=False)
records = st.integers(0, 9).flatmap(
    lambda n: st.builds(
        RoundRecord,
        n_drafted=st.just(n),
        n_accepted=st.integers(0, n),
        draft_s=seconds,
        verify_s=seconds,
        width=st.integers(1, 16),
        n_past=st.integers(0, 5000),
        source=st.just("q4" if n else "none"),
        signals=st.tuples(
            *(
                st.builds(Signals, st.just(i), st.just("q4"), st.none() | st.floats(0, 1), st.none() | st.floats(0, 12))
                for i in range(n)
            )
        ),
    )
)


def record(n: int = 2, accepted: int = 1) -> RoundRecord:
    return RoundRecord(n, accepted, 0.1, 0.2, 3, 7, "q4", tuple(Signals(i, "q4", 0.5, 1.0) for i in range(n)))


@given(st.lists(records, min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_rounds_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, made: list[RoundRecord]):
    path = tmp_path_factory.mktemp("traces") / "deep" / "t.jsonl"
    write = TraceFile(path, "fam", "code").recorder("f16", SIZES.get)
    for each in made:
        write(each)
    found = read_traces(path)
    assert len({each.reply for each in found}) == 1
    for each, ours in zip(found, made, strict=True):
        assert (each.family, each.target, each.task, each.draft) == ("fam", "f16", "code", ours.source)
        assert each.size_ratio == (0.3 if ours.source == "q4" else None)
        same = ("n_drafted", "n_accepted", "draft_s", "verify_s", "width", "n_past", "signals")
        assert all(getattr(each, name) == getattr(ours, name) for name in same)


def test_replies_are_told_apart_and_files_only_grow(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    for _ in range(2):
        TraceFile(path).recorder("f16", SIZES.get)(record())
    assert len({each.reply for each in read_traces(path)}) == 2


def test_every_line_is_on_disk_when_the_round_ends(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    write = TraceFile(path).recorder("f16", SIZES.get)
    for n in range(1, 4):
        write(record())
        assert path.read_bytes().count(b"\n") == n


def test_a_line_cut_short_costs_one_round_and_nothing_after_it(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    TraceFile(path).recorder("f16", SIZES.get)(record())
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(read_traces(path)) == 1
    TraceFile(path).recorder("f16", SIZES.get)(record())
    assert len(read_traces(path)) == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_accepted": 9}, "9 of 2"),
        ({"version": 99}, "newer program"),
        ({"draft_s": "soon"}, "no round"),
        ({"n_drafted": 2.5}, "no round"),
        ({"confidence": [0.5]}, "signals"),
        ({"entropy": 3}, "no round"),
        ({"reply": None}, "no round"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, change: dict[str, object], named: str):
    path = tmp_path / "t.jsonl"
    TraceFile(path).recorder("f16", SIZES.get)(record())
    plain = json.loads(path.read_text())
    path.write_text(path.read_text() + json.dumps(plain | change) + "\n")
    with pytest.raises(FileError, match=named) as caught:
        read_traces(path)
    assert "line 2" in str(caught.value)


def test_a_missing_and_an_empty_file_are_sentences(tmp_path: Path):
    with pytest.raises(FileError, match="cannot be read"):
        read_traces(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(FileError, match="--record"):
        read_traces(tmp_path / "empty.jsonl")
    with pytest.raises(FileError, match="cannot be written"):
        TraceFile(tmp_path).recorder("f16", SIZES.get)


def test_the_loop_reports_each_round_it_counts(rig: Callable[..., Rig]):
    seen: list[RoundRecord] = []
    model, draft = FakeModel(hashed(1)), FakeModel(hashed(1, agree=0.7))
    reply = rig(model, draft).reply(list(b"Once"), n_draft=4, max_tokens=60, on_round=seen.append)
    assert len(seen) == reply.stats.n_rounds > 5
    assert sum(each.n_drafted for each in seen) == reply.stats.n_drafted
    assert sum(each.n_accepted for each in seen) == reply.stats.n_accepted
