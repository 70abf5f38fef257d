"""Whole benches and evaluations on a tiny family with the real engine: documents, tables and files are as promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_specquant.bench.benches.ablation import bench_ablation
from edge_specquant.bench.benches.full import bench_full
from edge_specquant.bench.benches.speculation import bench_speculation
from edge_specquant.bench.benches.structured import ALL, ALONE, FREE, bench_structured
from edge_specquant.bench.evaluation.agreement_eval import evaluate_agreement
from edge_specquant.bench.evaluation.evaluation import EvalOptions, evaluate
from edge_specquant.bench.evaluation.questions import load_questions
from edge_specquant.bench.evaluation.tasks import TASKS
from edge_specquant.bench.measure.cases import load_cases
from edge_specquant.bench.measure.measurement import Case
from edge_specquant.bench.measure.runner import Plan
from edge_specquant.bench.papers.bitnest import bench_bitnest
from edge_specquant.bench.papers.speckv import bench_speckv
from edge_specquant.bench.reports.document import one_line
from edge_specquant.bench.reports.report import write_report
from edge_specquant.bench.reports.result import Result
from edge_specquant.cli.main import root
from edge_specquant.errors import UsageError
from edge_specquant.gguf.family.family import Family, Variant
from edge_specquant.native.quantizer import quantize
from edge_specquant.runtime import EngineOptions

OPTIONS = EngineOptions(n_ctx=2048, n_threads=1, snapshot_bytes=0, calibrate=False)
CASES = [Case("s", "story", "Tell me.", 12), Case("e", "edit this code", "x = 1", 12)]
PLAN = Plan(repeats=2)


def _silent(text: str) -> None:
    del text


@pytest.fixture(scope="module")
def family(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Family:
    """The tiny Llama as f16, q8 and q4."""
    folder = tmp_path_factory.mktemp("bench-family")
    paths = {"f16": tiny_gguf}
    for name, ftype in (("q8", "Q8_0"), ("q4", "Q4_0")):
        paths[name] = folder / f"{name}.gguf"
        quantize(tiny_gguf, paths[name], ftype=ftype)
    bits = {"f16": 16.0, "q8": 8.5, "q4": 4.5}
    variants = {
        name: Variant(name, path, path.stat().st_size, bits[name], {}, name.upper(), None)
        for name, path in paths.items()
    }
    return Family("tiny", folder, variants, None)


def _check(result: Result, kind: str) -> None:
    document = json.loads(one_line(result.document))
    assert document["bench"] == kind and document["version"] == 1
    assert document["environment"]["n_threads"] == 1
    for table in result.tables:
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows), table.title


def test_structured_replies_of_random_weights_are_measured(family: Family) -> None:
    result = bench_structured(family, OPTIONS, _silent, targets=["q8"], repeats=1, max_tokens=12)
    _check(result, "structured")
    settings = {run["setting"] for run in result.document["runs"]}
    assert settings == {FREE, ALONE, "form + grammar", "form + lookup", "form + q4", ALL}
    assert any(run["n_forced"] for run in result.document["runs"])
    assert len(result.document["forms"]) == len({run["case"] for run in result.document["runs"]}) == 5


def test_full_bench_and_its_report(family: Family, tmp_path: Path) -> None:
    result = bench_full(family, OPTIONS, CASES, PLAN, _silent)
    _check(result, "full")
    names = [one["name"] for one in result.document["summaries"]]
    assert names[:3] == ["f16 alone", "q8 alone", "q4 alone"] and "f16 default" in names
    for one in result.document["summaries"]:
        if one["target"] == "f16":  # whoever drafts, the target's own replies
            assert one["same_as_baseline"]["n_identical"] == len(CASES), one["name"]
        assert one["ceiling_tokens_per_s"] is None or one["ceiling_tokens_per_s"] > 0
    assert write_report(tmp_path, result) == ()
    for name in ("report.md", "result.json", "speed.png", "speed.svg", "classes.png", "curves.svg", "memory.png"):
        assert (tmp_path / name).stat().st_size > 0, name
    assert not list(tmp_path.glob(".*")), "a temporary file was left"
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "![Speed by setting](speed.png)" in text and "| f16 alone |" in text


def test_speculation_names_its_goals(family: Family) -> None:
    result = bench_speculation(
        family, OPTIONS, CASES, PLAN, _silent, targets=("f16",), controllers=("goodput",), n_long=100
    )
    _check(result, "speculation")
    goals = {row["what"]: row for row in result.document["goals"]}
    assert "editing" in goals and "time to first token" in goals
    assert all(row["reached"] in (True, False, None) for row in goals.values())
    classes = result.document["summaries"][0]["by_class"]
    assert classes["long prompt"]["ttft_s"]["median"] > 0


def test_ablation_has_every_part(family: Family) -> None:
    result = bench_ablation(family, OPTIONS, CASES, Plan(repeats=1), _silent)
    _check(result, "ablation")
    parts = [row[0] for row in result.tables[2].rows]
    for wanted in (
        "quantization only: q8",
        "quantization only: q4",
        "speculation only: q4, fixed 3",
        "lookup only",
        "controller + transplant",
        "controller + width padding",
        "routing only",
        "all of it, routed",
    ):
        assert wanted in parts
    for one in result.document["summaries"]:
        if "only: q4, fixed" in one["name"] or one["name"] in ("lookup only", "all of it, one target"):
            assert one["same_as_reference"]["n_identical"] == len(CASES), one["name"]


def test_reproductions_show_the_papers_figures(family: Family) -> None:
    speckv = bench_speckv(family, OPTIONS, CASES, Plan(budget_s=1), _silent)
    _check(speckv, "speckv")
    assert any("3.73" in cell for row in speckv.tables[0].rows for cell in row)
    bitnest = bench_bitnest(family, OPTIONS, CASES, Plan(repeats=1), _silent, contexts=(256, 384))
    _check(bitnest, "bitnest")
    points = bitnest.document["contexts"]
    assert {point["n_ctx"] for point in points} == {256, 384}
    assert all(0 <= point["acceptance"] <= 1 for point in points)
    cells = [point["n_kv_bytes"] for point in points if point["kv_type"] == "f16"]
    assert cells == sorted(cells)
    assert any("1.59x" in cell for table in bitnest.tables for row in table.rows for cell in row)


@pytest.mark.parametrize("kind", ["mmlu", "gsm8k", "alpaca"])
def test_evaluations_answer_twice(family: Family, tmp_path: Path, kind: str) -> None:
    record = tmp_path / "replies.jsonl"
    wish = EvalOptions(max_tokens=6, record=record)
    result = evaluate(family, OPTIONS, TASKS[kind], load_questions(kind, limit=3), wish, _silent)
    _check(result, f"eval {kind}")
    document = result.document
    assert document["n_questions"] == 3 and document["n_different"] == 0
    judged = document["accuracy"]["target alone"]
    assert judged is None if kind == "alpaca" else judged["n"] == 3
    assert (document["accuracy"]["log-likelihood of the choices"] is not None) == (kind == "mmlu")
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 3 and all(line["alone"] == line["with_speculation"] for line in lines)


def test_agreement_of_siblings(family: Family) -> None:
    result = evaluate_agreement(family, OPTIONS, load_questions("alpaca", limit=2), _silent, n_reply=8)
    _check(result, "eval agreement")
    assert set(result.document["agreement"]) == {"q8", "q4"}
    assert result.document["kld"]["q8"]["value"] <= result.document["kld"]["q4"]["value"]


def test_cases_are_five_classes_and_user_files_are_read(tmp_path: Path) -> None:
    shipped = load_cases()
    assert {case.prompt_class for case in shipped} == {
        "story",
        "explanation",
        "new code",
        "short fact",
        "edit this code",
    }
    assert all(128 <= case.max_tokens <= 256 for case in shipped)
    assert all(case.max_tokens == 9 for case in load_cases(max_tokens=9))
    assert len(load_cases(per_class=1)) == 5
    own = tmp_path / "own.jsonl"
    own.write_text('{"prompt": "hi"}\n{"text": "ho", "class": "mine", "max_tokens": 5}\n', encoding="utf-8")
    assert [(case.prompt_class, case.max_tokens) for case in load_cases(own)] == [("prompts", 128), ("mine", 5)]
    with pytest.raises(UsageError, match="there is no prompt class 'x'; the classes are story"):
        load_cases(classes=("x",))


def _run(*arguments: str) -> Callable[[], str]:
    done = CliRunner().invoke(root, arguments, standalone_mode=False)
    if done.exception:
        raise done.exception
    return lambda: done.stdout


def test_a_name_that_is_no_bench_is_a_family(tiny_gguf: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    arguments = (str(tiny_gguf), "--repeats", "3", "--max-tokens", "8", "--class", "story", "--per-class", "1")
    text = _run("bench", *arguments, "--ctx", "512", "--threads", "1", "--out", str(out))()
    document = json.loads(text.splitlines()[-1])
    assert document["bench"] == "full" and json.loads(out.read_text(encoding="utf-8")) == document
    compared = json.loads(_run("bench", "compare", str(out), str(out), "--json")())
    assert {change["verdict"] for change in compared["changes"]} == {"no clear change"}


def test_eval_on_the_command_line(tiny_gguf: Path, tmp_path: Path) -> None:
    arguments = ("--limit", "2", "--max-tokens", "4", "--threads", "1", "--json", "--out", str(tmp_path / "e.json"))
    text = _run("eval", "mmlu", str(tiny_gguf), *arguments)()
    document = json.loads(text)
    assert document["bench"] == "eval mmlu" and document["n_questions"] == 2
    assert json.loads((tmp_path / "e.json").read_text(encoding="utf-8")) == document
