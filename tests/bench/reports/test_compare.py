"""Comparison of two documents: real changes are named, noise is not, and a slower machine is not a slower program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_specquant.bench.reports.compare import compare
from edge_specquant.bench.reports.document import make_document, one_line, plain, read_document, write_document
from edge_specquant.errors import FileError

CASES = ("a", "b", "c", "d")


def _document(seed: int, speed: dict[str, float], digest: str = "1", cpu: str = "X") -> dict[str, Any]:
    """Runs of 'f16 alone' and 'drafted' with 2 % noise and slow drift that both share."""
    rng = np.random.default_rng(seed)
    runs = []
    for number, case in enumerate(CASES):
        for repeat in range(5):
            drift = np.exp(rng.normal(0, 0.05))
            for name in ("f16 alone", "drafted"):
                rate = speed[name] * (10 + 3 * number) * drift * np.exp(rng.normal(0, 0.01))
                tokens = digest if name == "drafted" else "0"
                run = {"contestant": name, "case": case, "class": "story", "repeat": repeat, "tokens": tokens}
                runs.append(run | {"tokens_per_s": float(rate)})
    summaries = [{"name": name, "baseline": "f16 alone"} for name in ("f16 alone", "drafted")]
    return make_document("speculation", environment={"cpu": cpu}, summaries=summaries, runs=runs)


def _verdicts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    return {change["name"]: change["verdict"] for change in compare(before, after).document["changes"]}


def test_no_change_is_no_clear_change() -> None:
    speed = {"f16 alone": 1.0, "drafted": 1.3}
    assert _verdicts(_document(1, speed), _document(2, speed))["drafted"] == "no clear change"


@pytest.mark.parametrize(("factor", "verdict"), [(1.15, "faster"), (0.85, "slower")])
def test_a_real_change_is_named(factor: float, verdict: str) -> None:
    before = _document(1, {"f16 alone": 1.0, "drafted": 1.3})
    after = _document(2, {"f16 alone": 1.0, "drafted": 1.3 * factor})
    assert _verdicts(before, after)["drafted"] == verdict


def test_a_slower_machine_is_not_a_slower_draft() -> None:
    before = _document(1, {"f16 alone": 1.0, "drafted": 1.3})
    after = _document(2, {"f16 alone": 0.5, "drafted": 0.65}, cpu="Y")
    result = compare(before, after)
    assert _verdicts(before, after) == {"f16 alone": "slower", "drafted": "no clear change"}
    assert any("cpu differs: X and Y" in note for note in result.tables[0].notes)


def test_changed_replies_are_counted() -> None:
    speed = {"f16 alone": 1.0, "drafted": 1.3}
    changes = compare(_document(1, speed, "1"), _document(2, speed, "2")).document["changes"]
    assert {change["name"]: change["replies_changed"] for change in changes} == {"f16 alone": 0, "drafted": 4}


def test_nothing_in_common_is_a_sentence() -> None:
    other = make_document("full", runs=[])
    with pytest.raises(FileError, match="share no setting"):
        compare(_document(1, {"f16 alone": 1, "drafted": 1}), other)


def test_documents_survive_the_disk_and_a_log_around_them(tmp_path: Path) -> None:
    document = _document(1, {"f16 alone": 1.0, "drafted": 1.3})
    write_document(tmp_path / "a.json", document)
    assert read_document(tmp_path / "a.json") == document
    log = tmp_path / "log"
    log.write_text(f"### a table\n| x |\n{{not json\n{one_line(document)}\n", encoding="utf-8")
    assert read_document(log) == document
    with pytest.raises(FileError, match="holds no document"):
        log.write_text("nothing", encoding="utf-8")
        read_document(log)
    with pytest.raises(FileError, match="cannot be read"):
        read_document(tmp_path / "absent")


def test_unknown_is_null_and_the_document_is_one_line() -> None:
    document = make_document("x", a=float("nan"), b=float("inf"), c=None, d=(1, 2.00000001), e={3: "ü\n"})
    line = one_line(document)
    assert "\n" not in line and json.loads(line)["a"] is None and json.loads(line)["b"] is None
    assert plain(0.123456789) == 0.123457
