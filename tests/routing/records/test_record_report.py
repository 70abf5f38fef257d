"""Records of routes and the report on them: nothing of the prompt's text is kept, every figure can be traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge_specquant.errors import FileError
from edge_specquant.routing.features.features import Features, extract
from edge_specquant.routing.learn.fit import fit_policy
from edge_specquant.routing.learn.replay import replay_measured
from edge_specquant.routing.learn.report import report_traffic
from edge_specquant.routing.policy.policy import Policy
from edge_specquant.routing.records.measurements import Measured, append_measured, read_measured
from edge_specquant.routing.records.record import RouteRecord, append_record, hash_prompt, make_record, read_records
from edge_specquant.routing.router import route

MakeMeasured = Callable[..., list[Measured]]
SECRET = "Why did Archibald Quimby of Nether Wallop leave before the verdict?"


def some_record(text: str = SECRET, **given: object) -> RouteRecord:
    decided = route(extract(text, n_tokens=16), Policy.load("fast"), available=["q4", "q8", "f16"])
    plain: dict[str, object] = {
        "time": "2026-11-30T03:00:00+00:00",
        "decide_s": 0.002,
        "n_prompt": 60,
        "n_generated": 11,
        "ttft_s": 0.2,
        "decode_s": 0.5,
        "acceptance_rate": 0.6,
    }
    return make_record(decided, text, **(plain | given))  # type: ignore[arg-type]


def flat(features: Features, rng: np.random.Generator) -> dict[str, float]:
    del features
    return {"q4": float(rng.uniform(0.5, 0.9)), "q8": 0.97}


def test_records_come_back_as_written(tmp_path: Path) -> None:
    file = tmp_path / "a folder" / "routes.jsonl"
    records = [some_record(), some_record("Hi!", ttft_s=None, decide_s=None, acceptance_rate=None)]
    for record in records:
        append_record(file, record)
    assert read_records(file) == records


def test_no_word_of_the_prompt_is_kept(tmp_path: Path) -> None:
    append_record(tmp_path / "routes.jsonl", some_record())
    written = (tmp_path / "routes.jsonl").read_text(encoding="utf-8")
    assert not [word for word in ("Archibald", "Quimby", "Wallop", "verdict") if word in written]
    assert hash_prompt(SECRET) in written


def test_a_line_cut_short_is_passed_over_and_written_past(tmp_path: Path) -> None:
    file = tmp_path / "routes.jsonl"
    append_record(file, some_record())
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:40])
    assert len(read_records(file)) == 1
    append_record(file, some_record())
    with pytest.raises(FileError, match="line 2 is not JSON"):
        read_records(file)


@pytest.mark.parametrize("line", ['{"version": 99}', '{"version": 1}', '{"version": 1, "features": 3}', "[]"])
def test_another_kind_of_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "routes.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(FileError, match="line 1"):
        read_records(tmp_path / "routes.jsonl")


def test_shares_add_up_and_medians_are_of_the_records() -> None:
    records = [some_record("Hi!", decode_s=1.0), some_record("", decode_s=3.0), some_record("", decode_s=5.0)]
    report = report_traffic(records, Policy.load("fast"))
    assert sum(use.share for use in report.tiers) == pytest.approx(1.0)
    assert {use.tier: use.total_s for use in report.tiers} == {"low": 1.2, "medium": 0.0, "high": pytest.approx(4.2)}
    assert not report.rivals
    assert "router fit" in report.note


def test_deciding_is_set_against_the_first_token_of_longer_prompts() -> None:
    long = some_record("word " * 90)
    report = report_traffic([some_record("Hi!", ttft_s=0.004)], Policy.load("fast"))
    assert report.decision is not None
    assert report.decision.share_of_ttft is None
    decided = route(extract("word " * 90, n_tokens=90), Policy.load("fast"), available=["f16"])
    record = make_record(
        decided, "x", time="", decide_s=0.01, n_prompt=90, n_generated=2, ttft_s=0.5, decode_s=0.1, acceptance_rate=None
    )
    report = report_traffic([record, long], Policy.load("fast"))
    assert report.decision is not None
    assert report.decision.share_of_ttft == pytest.approx(0.02)


def test_an_empty_file_is_a_report_of_nothing() -> None:
    report = report_traffic([], Policy.load("fast"))
    assert (report.n, report.decision, report.rivals) == (0, None, ())


def test_a_replay_of_the_measured_prompts_is_exact(make_measured: MakeMeasured) -> None:
    measured = make_measured(80, flat)
    result = fit_policy(measured, name="x", family="f", wanted=0.9)
    known = {one.id: one for one in measured}
    report = report_traffic(replay_measured(known, result.policy), result.policy, known)
    assert report.n_measured == report.n == 80
    rivals = {row.name: row for row in report.rivals}
    assert rivals["as routed"].seconds == pytest.approx(rivals["policy x"].seconds)
    for fitted_row in result.rows[:3]:
        assert rivals[fitted_row.name].agreement == pytest.approx(fitted_row.agreement)
        assert rivals[fitted_row.name].seconds == pytest.approx(fitted_row.seconds)
    assert rivals["oracle"].agreement >= 0.9 - 1e-9


def test_unmeasured_traffic_is_judged_by_the_fit(make_measured: MakeMeasured) -> None:
    policy = fit_policy(make_measured(80, flat), name="x", family="f", wanted=0.9).policy
    report = report_traffic([some_record(), some_record("Hi!")], policy)
    assert report.n_measured == 0
    rivals = {row.name: row for row in report.rivals}
    assert rivals["always f16"].agreement == 1.0
    assert 0.5 < rivals["always q4"].agreement < 0.9


def test_measurements_come_back_as_written(tmp_path: Path, make_measured: MakeMeasured) -> None:
    measured = make_measured(5, flat)
    for one in measured:
        append_measured(tmp_path / "m.jsonl", one)
    assert read_measured(tmp_path / "m.jsonl") == measured
