"""A bench over a backend with known costs finds those costs: rates, ratios, acceptance, first token, bytes."""

from __future__ import annotations

import pytest
from bench_rig import costly_runtime

from edge_specquant.bench.benches.strict_cost import strict, strict_rows, strict_table
from edge_specquant.bench.measure.measurement import Case
from edge_specquant.bench.measure.runner import Outcome, Plan, run_all
from edge_specquant.bench.measure.width_costs import measure_curves
from edge_specquant.bench.reports.race_tables import contestants_table, profile_table, what_pays
from edge_specquant.bench.reports.summary import Summary, summarise
from edge_specquant.bench.runs.local_runs import LocalRuns, Setting, alone
from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.native.fake import FakeVocab
from edge_specquant.native.protocol import ContextParams
from edge_specquant.params import SpeculationParams

CASES = [Case(f"c{i}", kind, f"prompt {i}", 60) for i, kind in enumerate(("story", "story", "edit this code"))]
TARGET_S, DRAFT_S, N_DRAFT = 0.100, 0.020, 3
PLAIN = SpeculationParams(draft="q4", n_draft=N_DRAFT, controller="fixed", pad=False, transplant=True)


def _race(patch: pytest.MonkeyPatch, agree: float, repeats: int = 2) -> tuple[dict[str, Summary], Outcome]:
    costs = {"f16": lambda n: TARGET_S + 0.001 * (n - 1), "q4": lambda n: DRAFT_S + 0.0005 * (n - 1)}
    runtime, clock = costly_runtime(patch, costs, {"f16": 1.0, "q4": agree})
    with runtime:
        local = LocalRuns(runtime, decode_bytes={"f16": 1000, "q4": 250}, clock=clock)
        settings = [alone("f16"), alone("q4"), Setting("drafted", "f16", PLAIN)]
        contestants = [local.contestant(setting) for setting in settings]
        outcome = run_all(contestants, CASES, Plan(repeats=repeats, clock=clock))
    return {one.name: one for one in summarise(outcome, "f16 alone")}, outcome


def test_plain_rates_are_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    found, outcome = _race(monkeypatch, 0.8)
    assert outcome.n_repeats == 2 and len(outcome.runs) == 2 * 3 * len(CASES)
    for name, seconds in (("f16 alone", TARGET_S), ("q4 alone", DRAFT_S)):
        rate = found[name].tokens_per_s
        assert rate is not None and rate.median == pytest.approx(1 / seconds, rel=1e-6)
        assert rate.low == pytest.approx(rate.high, rel=1e-6)
        speedup = found[name].speedup
        assert speedup is not None and speedup.value == pytest.approx(1.0)
    gain = found["q4 alone"].gain
    assert gain is not None and gain.value == pytest.approx(TARGET_S / DRAFT_S, rel=1e-6)


@pytest.mark.parametrize("agree", [0.5, 0.8, 1.0])
def test_drafted_rates_follow_from_acceptance_and_costs(monkeypatch: pytest.MonkeyPatch, agree: float) -> None:
    found, outcome = _race(monkeypatch, agree)
    runs = [run.sample for run in outcome.runs if run.contestant == "drafted"]
    for sample in runs:
        assert sample.n_rounds and sample.n_drafted is not None and sample.draft_s is not None
        assert sample.verify_s == pytest.approx(sample.n_rounds * TARGET_S + 0.001 * sample.n_drafted, rel=1e-6)
        assert sample.decode_s == pytest.approx(sample.verify_s + sample.draft_s, rel=1e-6)
    drafted = found["drafted"]
    n_kept = sum(agree**k for k in range(1, N_DRAFT + 1))  # expected tokens accepted a round
    assert drafted.acceptance == pytest.approx(n_kept / N_DRAFT, abs=0.1)
    assert drafted.profile is not None
    assert drafted.profile.drafter == pytest.approx(sum(s.draft_s or 0 for s in runs) / sum(s.decode_s for s in runs))
    assert drafted.profile.outside == pytest.approx(0.0, abs=1e-9)
    assert drafted.speedup is not None
    round_s = TARGET_S + 0.001 * N_DRAFT + DRAFT_S * N_DRAFT
    assert drafted.speedup.value == pytest.approx((1 + n_kept) * TARGET_S / round_s, rel=0.15)
    assert drafted.same_as_baseline is not None and drafted.same_as_baseline.n_identical == len(CASES)


def test_the_profile_finds_what_is_not_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that takes 20 ms a token beside forwards of 100 ms is a sixth of the decode time."""
    costs = {"f16": lambda n: TARGET_S}
    runtime, clock = costly_runtime(monkeypatch, costs, {"f16": 1.0})
    spell = FakeVocab.piece

    def slow_piece(self: FakeVocab, token: int, *, special: bool = False) -> bytes:
        clock.now_s += TARGET_S / 5
        return spell(self, token, special=special)

    monkeypatch.setattr(FakeVocab, "piece", slow_piece)
    with runtime:
        local = LocalRuns(runtime, clock=clock)
        outcome = run_all([local.contestant(alone("f16"))], CASES, Plan(repeats=1, clock=clock))
    summaries = summarise(outcome, "f16 alone")
    profile = summaries[0].profile
    assert profile is not None
    assert profile.target == pytest.approx(5 / 6, rel=0.01) and profile.rest == pytest.approx(1 / 6, rel=0.05)
    assert (profile.drafter, profile.sampling) == (0.0, 0.0) and profile.drafting == 0.0
    table = profile_table(summaries)
    assert table is not None and table.rows[0][0] == "f16 alone" and table.rows[0][1].startswith("83.")


def test_strict_is_compared_with_the_same_setting_and_with_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strict draft decodes token by token until it has a certificate; the table says how dear that is."""
    costs = {"f16": lambda n: TARGET_S, "q4": lambda n: DRAFT_S}
    runtime, clock = costly_runtime(monkeypatch, costs, {"f16": 1.0, "q4": 1.0})
    with runtime:
        local = LocalRuns(runtime, clock=clock)
        plain = [alone("f16"), Setting("f16 goodput", "f16", PLAIN)]
        contestants = [local.contestant(one) for one in (*plain, *(strict(one) for one in plain))]
        outcome = run_all(contestants, CASES, Plan(repeats=1, clock=clock))
    rows = {row.name: row for row in strict_rows(outcome)}
    assert list(rows) == ["f16 alone, strict", "f16 goodput, strict"]
    for row in rows.values():
        assert row.same is not None and row.same.n_identical == row.same.n_cases == len(CASES)
        assert row.speed is not None and row.speed.value <= 1.001
    table = strict_table(list(rows.values()))
    assert table is not None and len(table.rows) == 2
    assert strict_table([]) is None


def test_first_token_pays_for_the_whole_prompt_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found, outcome = _race(monkeypatch, 0.8)
    for run in outcome.runs:
        if run.contestant == "f16 alone":
            assert run.sample.n_prompt and run.sample.ttft_s is not None
            assert run.sample.ttft_s >= TARGET_S + 0.001 * (run.sample.n_prompt - 2)
    assert found["f16 alone"].ttft_s is not None


def test_bytes_moved_are_passes_over_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    found, outcome = _race(monkeypatch, 0.8)
    assert found["f16 alone"].n_bytes_per_token == pytest.approx(1000)
    for run in outcome.runs:
        if run.contestant == "drafted":
            sample = run.sample
            assert sample.n_bytes_moved == 1000 * (sample.n_rounds or 0) + 250 * (sample.n_drafted or 0)


def test_reports_say_plainly_whether_a_draft_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    good, _ = _race(monkeypatch, 1.0)
    assert any("pays most" in sentence for sentence in what_pays(list(good.values())))
    bad, _ = _race(monkeypatch, 0.02)
    sentences = what_pays(list(bad.values()))
    assert any("no draft pays here" in sentence for sentence in sentences)
    assert any(sentence.startswith("Slower than f16 alone: 'drafted'") for sentence in sentences)
    table = contestants_table("t", list(bad.values()), {}, "f16 alone")
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_cost_curves_are_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(n: int) -> float:
        return 0.030 if n == 4 else 0.025 + 0.004 * n  # a cheap width

    runtime, clock = costly_runtime(monkeypatch, {"f16": cost}, {"f16": 1.0})
    with runtime:
        model = runtime._engine._open_variant("f16", lambda _done: True)  # type: ignore[attr-defined]
        cache = KVCache(model.context(ContextParams(n_ctx=512, max_rows=16)))
        curves = measure_curves({"f16": cache}, widths=(1, 2, 4, 8), n_past=16, n_repeats=3, clock=clock)
    assert [each.width for each in curves["f16"]] == [1, 2, 4, 8]
    for each in curves["f16"]:
        assert each.seconds.median == pytest.approx(cost(each.width)) and each.seconds.n == 3
    assert cache.n_past == 16
