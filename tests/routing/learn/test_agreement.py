"""Measuring siblings against F16 with the real engine on tiny models, and the verbs built on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_specquant.bench.evaluation.agreement import AgreementMeter
from edge_specquant.bench.evaluation.prompt_measures import MeasureOptions, measure_prompts, reference_of
from edge_specquant.cli.main import root
from edge_specquant.errors import ContextFullError, FamilyError, FileError
from edge_specquant.gguf.checkpoint.source import open_source
from edge_specquant.gguf.convert.convert import convert
from edge_specquant.gguf.convert.siblings import plan_conversion
from edge_specquant.gguf.family.family import Family
from edge_specquant.native.opening import open_model
from edge_specquant.routing.policy.policy import Policy
from edge_specquant.routing.records.prompts import Prompt


@pytest.fixture(scope="module")
def family(tiny_gguf: Path) -> Family:
    """F16, Q8 and Q4 of a tiny random model."""
    return convert(plan_conversion(open_source(str(tiny_gguf)), "routing-tiny"))


def few(prompts: list[Prompt], n: int) -> list[Prompt]:
    short = [prompt for prompt in prompts if len(prompt.text) < 60]
    return short[:n]


def test_a_model_agrees_with_itself(tiny_gguf: Path) -> None:
    first, second = open_model(tiny_gguf), open_model(tiny_gguf)
    with AgreementMeter({"f16": first, "twin": second}, "f16", n_reply=12, n_ctx=64) as meter:
        found = meter.measure(first.vocab.tokenize("ab ba ab"))
        assert found.siblings["twin"].agreement == found.siblings["f16"].agreement == 1.0
        assert found.siblings["twin"].kld == pytest.approx(0.0, abs=1e-6)
        assert 1 <= len(found.reply) <= 12
        with pytest.raises(ContextFullError, match="holds 64"):
            meter.measure([1] * 60)
    second.close()
    first.close()


def test_measuring_goes_on_where_it_stopped(tmp_path: Path, family: Family, prompts: list[Prompt]) -> None:
    file = tmp_path / "m.jsonl"
    told: list[int] = []
    options = MeasureOptions(n_reply=6, n_threads=1)
    measure_prompts(family, few(prompts, 2), file, options)
    found = measure_prompts(
        family, few(prompts, 5), file, options, on_prompt=lambda done, _total, _note: told.append(done)
    )
    assert told == [3, 4, 5]
    assert [one.id for one in found] == [prompt.id for prompt in few(prompts, 5)]
    for one in found:
        assert one.siblings["f16"].agreement == 1.0
        assert all(0 <= sibling.agreement <= 1 and sibling.kld >= 0 for sibling in one.siblings.values())
    with pytest.raises(FileError, match="--measured"):
        measure_prompts(family, few(prompts, 6), file, MeasureOptions(("q4",), n_reply=6))


def test_a_family_without_full_precision_has_nothing_to_agree_with(family: Family) -> None:
    without = Family(family.name, family.folder, {"q4": family.variants["q4"]}, None)
    with pytest.raises(FamilyError, match="full-precision"):
        reference_of(without)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(root, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_fit_and_report_from_the_command_line(tmp_path: Path, family: Family, prompts: list[Prompt]) -> None:
    file, measured, policy = tmp_path / "p.jsonl", tmp_path / "m.jsonl", tmp_path / "fitted.toml"
    lines = (json.dumps({"id": prompt.id, "pair": prompt.group, "text": prompt.text}) for prompt in few(prompts, 24))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    common = ("--measured", str(measured))
    fit = ("router", "fit", str(file), str(family.folder), "--reply", "4", "--threads", "1", "--out", str(policy))
    result = json.loads(run(*fit, *common, "--json"))
    assert Policy.load(policy).fitted is not None
    assert {row["name"] for row in result["rows"]} >= {"always q4", "length only", "all signals", "oracle"}
    replay = ("router", "report", "--replay", "fast", "--policy", str(policy), "--prompts", str(file), *common)
    report = json.loads(run(*replay, "--json"))
    assert report["n"] == report["n_measured"] == 24
    table = run(*replay)
    assert "always f16" in table
    assert "length-only" in " ".join(table.split())


def test_route_from_the_command_line(family: Family) -> None:
    document = json.loads(run("route", "Hi!", "--family", str(family.folder), "--json", "--policy", "fast"))
    assert document["tier"] == "low"
    assert document["features"]["n_tokens"] > 0
    explained = run("route", "[bold]Why?[/bold]", "--explain", "--override", "q8/none")
    assert "by hand" in explained
    assert "nearest flip" in explained
