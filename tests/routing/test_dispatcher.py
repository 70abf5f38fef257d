"""The router as a runtime holds it."""

from __future__ import annotations

from pathlib import Path

from edge_specquant.routing.dispatcher import Dispatcher
from edge_specquant.routing.features.features_spacy import SpacySyntax
from edge_specquant.routing.records.record import append_record, read_records


def test_a_decision_becomes_the_record_of_its_reply(tmp_path: Path) -> None:
    dispatcher = Dispatcher("memory")
    decision = dispatcher.decide("Why is the sky blue?", n_tokens=7, available=["q4", "f16"], override="q4")
    assert decision.route.target == "q4"
    record = decision.record(n_prompt=30, n_generated=5, ttft_s=0.1, decode_s=0.2, acceptance_rate=None)
    append_record(tmp_path / "routes.jsonl", record)
    assert read_records(tmp_path / "routes.jsonl") == [record]
    assert record.decide_s == decision.decide_s > 0
    assert (record.policy, record.tier, record.target) == ("memory", decision.route.tier, "q4")


def test_a_missing_model_is_told_once() -> None:
    parser = SpacySyntax(models=("no_such_model_anywhere",))
    dispatcher = Dispatcher("fast", parser)
    parser.wait(20)
    assert dispatcher.decide("Why?", n_tokens=2, available=["f16"]).route.features.estimator == "rules"
    notices = [dispatcher.take_notice() for _ in range(3)]
    assert notices[0] is not None
    assert notices[1:] == [None, None]
