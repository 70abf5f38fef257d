"""The documentation's pictures follow from documents: what a bench drew, its document draws again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_specquant.bench.measure.statistics import Interval, Spread
from edge_specquant.bench.measure.width_costs import WidthCost
from edge_specquant.bench.reports.document import make_document, one_line
from edge_specquant.bench.reports.redraw import agreements, pictures_of, redraw
from edge_specquant.bench.reports.result import MemoryPoint
from edge_specquant.bench.reports.summary import ClassSummary, Summary

RATE, GAIN = Spread(30.0, 29.0, 31.0, 2), Interval(1.5, None, None, 1)
CLASS = ClassSummary(tokens_per_s=RATE, speedup=GAIN, gain=GAIN, acceptance=0.9, ttft_s=None, ttft_ratio=None)
ENVIRONMENT = {"family": "f", "cpu": "c", "n_threads": 1, "n_cores": 1, "engine": "e", "date": "2026-01-02"}


def summary(name: str, target: str, draft: str, gain: float) -> Summary:
    unknown: dict[str, Any] = dict.fromkeys(Summary.__slots__)
    known = {
        "name": name,
        "target": target,
        "draft": draft,
        "tokens_per_s": RATE,
        "speedup": GAIN,
        "gain": replace(GAIN, value=gain),
        "by_class": {"story": CLASS},
        "accepted_by_position": (0.9, 0.8),
    }
    return Summary(**{**unknown, **known, "baseline": "f16 alone", "n_runs": 2, "reason": ""})


SUMMARIES = (
    summary("f16 alone", "f16", "none", 1.0),
    summary("q4 alone", "q4", "none", 3.0),
    summary("f16 goodput", "f16", "lookup+q4", 1.5),
    summary("f16 fixed 3", "f16", "q4", 1.2),
    summary("routing only", "by prompt", "by prompt", 2.0),
)
QUALITY = {"q4": {"top1_agreement": 0.7}, "routing only": {"top1_agreement": 0.9}, "f16": None}


def test_a_document_gives_back_what_it_was_made_from() -> None:
    curves = {"q4": (WidthCost(1, 128, RATE), WidthCost(4, 128, RATE))}
    memory = (MemoryPoint("q4", 512, 1000),)
    made = make_document("x", summaries=SUMMARIES, cost_curves=curves, memory=memory, floors_s={"q4": 0.01})
    found = pictures_of(json.loads(one_line(made)))
    assert (found.summaries, found.curves, found.memory) == (SUMMARIES, curves, memory)


def test_agreement_is_of_those_who_answer_alone_or_routed_and_of_the_fastest_with_the_same_text() -> None:
    known = agreements(SUMMARIES, QUALITY, "f16 alone")
    assert known == {"q4 alone": 0.7, "routing only": 0.9, "f16 alone": 1.0, "f16 goodput": 1.0}
    assert agreements(SUMMARIES, {}, "f16 alone") == {}


def test_only_what_a_page_shows_is_drawn_and_twice_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "page.md").write_text("![a](images/ablation-coin.svg) ![b](images/ablation-classes.svg)", "utf-8")
    made = make_document(
        "ablation", summaries=SUMMARIES, quality=QUALITY, reference="f16 alone", environment=ENVIRONMENT
    )
    drawn = {path: path.read_bytes() for path in redraw(tmp_path, made)}
    assert {path.name for path in drawn} == {"ablation-coin.svg", "ablation-classes.svg"}
    assert all(b"<svg" in data for data in drawn.values())
    assert {path: path.read_bytes() for path in redraw(tmp_path, made)} == drawn
