"""The verb gamma: what `run --record` wrote is trained on and judged; laws of the policy table on made-up traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edge_specquant.bench.papers.draft_length_policies import measured_costs, parse_costs
from edge_specquant.bench.papers.draft_length_report import PolicyRow, evaluate
from edge_specquant.cli.verbs.gamma import command
from edge_specquant.config import HOME_VARIABLE
from edge_specquant.engine.control.speckv.speckv import find_predictor, user_predictor_path
from edge_specquant.engine.control.traces import TraceRound
from edge_specquant.errors import EdgeSpecQuantError, UsageError

CHEAP = parse_costs("1:25,9:30", 1.0)
DEAR = parse_costs("1:25,3:60,5:65,9:92", 11.6)
CONTROLLERS = {"speckv, tokens", "speckv, rate", "entropy", "goodput"}
PAIR = ("fam", "f16", "q4")


def made_up(n_replies: int = 24, n_rounds: int = 12, seed: int = 0) -> list[TraceRound]:
    """Replies that are easy or hard throughout, and drafts whose confidence says so."""
    rng = np.random.default_rng(seed)
    return [
        one_round(
            f"r{i}", "code" if i % 2 else "chat", float(rng.uniform(0.8, 0.99) if i % 2 else rng.uniform(0.1, 0.5)), rng
        )
        for i in range(n_replies)
        for _ in range(n_rounds)
    ]


def one_round(reply: str, task: str, confidence: float, rng: np.random.Generator) -> TraceRound:
    accepted = min(8, int(rng.geometric(1 - min(confidence, 0.97))) - 1)
    values = tuple(float(np.clip(confidence + rng.normal(0, 0.02), 0, 1)) for _ in range(8))
    return TraceRound(reply, *PAIR, task, 0.3, 8, accepted, 0.1, 0.1, 9, 50, values, tuple(3 * (1 - c) for c in values))


def rows(rounds: Sequence[TraceRound], costs: Any) -> dict[str, PolicyRow]:
    report = evaluate(rounds, {} if costs is None else {PAIR: costs})
    return {row.name: row for row in report.tables[0].rows}


def rate(row: PolicyRow) -> float:
    assert row.tokens_per_s is not None
    return row.tokens_per_s.value


@pytest.fixture(scope="module")
def dear() -> dict[str, PolicyRow]:
    return rows(made_up(), DEAR)


def test_the_most_tokens_a_round_are_always_the_longest_draft(dear: dict[str, PolicyRow]):
    most = dear["fixed-8"].tokens_per_round.value
    assert dear["fixed-best, tokens"].tokens_per_round.value == dear["oracle, tokens"].tokens_per_round.value == most
    assert all(row.tokens_per_round.value <= most for name, row in dear.items() if name not in CONTROLLERS)


def test_the_oracle_of_time_is_beaten_by_nobody(dear: dict[str, PolicyRow]):
    best = rate(dear["oracle, time"])
    assert all(rate(row) <= best + 1e-9 for name, row in dear.items() if name not in CONTROLLERS)
    assert all(
        rate(dear[name]) <= 1.02 * best for name in CONTROLLERS
    )  # they meet easy rounds more often than hard ones
    fixed = [rate(dear[name]) for name in ("the target alone", "fixed-2", "fixed-4", "fixed-6", "fixed-8")]
    assert rate(dear["fixed-best, time"]) == pytest.approx(max(fixed))
    assert rate(dear["task oracle, time"]) >= rate(dear["fixed-best, time"]) - 1e-9


def test_where_drafts_are_dear_policies_of_time_lose_at_most_three_per_cent(dear: dict[str, PolicyRow]):
    alone = rate(dear["the target alone"])
    assert rate(dear["goodput"]) > 0.96 * alone and rate(dear["speckv, rate"]) > 0.96 * alone


def test_where_drafts_are_cheap_the_network_finds_the_long_ones():
    cheap = rows(made_up(), CHEAP)
    assert rate(cheap["speckv, rate"]) > 1.3 * rate(cheap["the target alone"])
    assert rate(cheap["speckv, rate"]) > rate(cheap["fixed-2"])


def test_the_baseline_differs_from_itself_by_nothing_and_intervals_hold_their_values(dear: dict[str, PolicyRow]):
    base = dear["fixed-4"].over_baseline
    assert (base.value, base.low, base.high) == (0, 0, 0) and dear["fixed-4"].p_value == 1
    for row in dear.values():
        low, high = row.tokens_per_round.low, row.tokens_per_round.high
        assert low is not None and high is not None and low - 1e-9 <= row.tokens_per_round.value <= high + 1e-9
    assert dear["fixed-8"].p_value < 0.01


def test_without_costs_there_are_no_seconds_and_the_rest_stands():
    found = rows(made_up(), None)
    assert "goodput" not in found and "speckv, tokens" in found
    assert all(row.tokens_per_s is None and row.over_plain is None for row in found.values())


def test_costs_come_from_the_traces_when_plain_rounds_are_among_them():
    rounds = made_up(2, 8)
    plain = [TraceRound("p", "fam", "f16", "none", "", None, 0, 0, 0.0, 0.02, 1, 9, (), ())] * 6
    assert measured_costs(rounds) == {}
    found = measured_costs(rounds + plain)[PAIR]  # type: ignore[index]
    assert found.target.decode_s(1) == 0.02 and found.target.decode_s(9) == 0.1 and found.draft_s == 0.1 / 8


@pytest.mark.parametrize("text", ["", "1", "3:60,5:65", "1:25", "1:25,1:26", "1:-3,9:4", "a:b,1:2"])
def test_bad_costs_are_a_sentence(text: str):
    with pytest.raises(UsageError):
        parse_costs(text, 11.6)


def test_the_confidence_that_decides_is_what_the_network_looks_at():
    report = evaluate(made_up(), {})
    assert report.explained > 0.3 and sum(report.importances.values()) == pytest.approx(1)
    assert report.importances["compression"] < 0.01
    assert report.decision_s > 0


# -- the verb --------------------------------------------------------------------------------------------------------


def written(path: Path, rounds: Sequence[TraceRound]) -> str:
    from dataclasses import asdict

    path.write_text("".join(json.dumps({"version": 1} | asdict(each)) + "\n" for each in rounds))
    return str(path)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_train_then_judge_then_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    traces = written(tmp_path / "t.jsonl", made_up())
    told = run("train", traces, "--objective", "tokens")
    assert "fam f16+q4" in told and user_predictor_path().is_file()
    found = find_predictor()
    assert found is not None and found.objective == "tokens"
    assert "fixed-4" in run("evaluate", traces, "--model", str(user_predictor_path()))
    given = ("--verify-ms", "1:25,3:60,5:65,9:92", "--draft-ms", "11.6")
    document = json.loads(run("evaluate", traces, *given, "--json").splitlines()[-1])
    assert {"tables", "importances", "decision_s", "explained"} <= set(document)
    assert any(row["tokens_per_s"] for row in document["tables"][0]["rows"])


def test_training_twice_gives_the_same_file(tmp_path: Path):
    traces = written(tmp_path / "t.jsonl", made_up())
    for name in ("a", "b"):
        run("train", traces, "--out", str(tmp_path / name))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "arguments", [("train",), ("evaluate",), ("evaluate", "--family", "other"), ("evaluate", "--target", "q8")]
)
def test_too_little_is_a_sentence(tmp_path: Path, arguments: tuple[str, ...]):
    traces = written(tmp_path / "t.jsonl", made_up(2, 3))
    with pytest.raises(EdgeSpecQuantError):
        CliRunner().invoke(command, [arguments[0], traces, *arguments[1:]], catch_exceptions=False)


def test_half_of_the_costs_is_bad_usage(tmp_path: Path):
    traces = written(tmp_path / "t.jsonl", made_up(2, 3))
    assert CliRunner().invoke(command, ["evaluate", traces, "--draft-ms", "3"]).exit_code == 2
