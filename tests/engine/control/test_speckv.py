"""The SpecKV controller and its training: it picks the argmax of what the network says, learns what traces hold, never
changes the reply, and with costs in view never bets more than the ledger allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from engine_rig import GREEDY, Rig, collect
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.config import HOME_VARIABLE
from edge_specquant.engine import session
from edge_specquant.engine.caches.residents import Residents
from edge_specquant.engine.control.costs import Costs
from edge_specquant.engine.control.speckv.mlp import Mlp
from edge_specquant.engine.control.speckv.speckv import (
    FEATURES,
    GAMMAS,
    Predictor,
    SpecKV,
    find_predictor,
    read_predictor,
    summarise,
    user_predictor_path,
)
from edge_specquant.engine.control.speckv.speckv_training import rows_of, train
from edge_specquant.engine.control.traces import TraceFile, TraceRound, read_traces
from edge_specquant.engine.drafters.model_drafter import ModelDrafter
from edge_specquant.engine.drafters.portfolio import Portfolio
from edge_specquant.engine.signals import Offer, Signals
from edge_specquant.engine.stats import RoundRecord
from edge_specquant.errors import FileError, UsageError
from edge_specquant.native.fake import FakeModel, hashed
from edge_specquant.native.protocol import ContextParams
from edge_specquant.params import SpeculationParams
from edge_specquant.placement.cost.cost_curve import CostCurve

SIBLING = Offer("q4", 16, n_behind=1)
LOOKUP = Offer("lookup", 5, match_length=4)


def says(acceptance: Callable[[float], float], objective: str) -> Predictor:
    """A network whose prediction is linear in gamma through the two ends given by `acceptance`."""
    slope = (acceptance(8) - acceptance(2)) / 6
    w1 = np.zeros((len(FEATURES), 1))
    w1[-1, 0] = 1.0  # the hidden unit is gamma itself, which is positive
    zeros, ones = np.zeros(len(FEATURES)), np.ones(len(FEATURES))
    return Predictor(
        Mlp(zeros, ones, w1, np.zeros(1), np.array([slope]), acceptance(2) - 2 * slope), objective, "a script"
    )


def costs(first_ms: float = 25, ninth_ms: float = 92, draft_ms: float = 11.6) -> Costs:
    target = CostCurve((1, 9), (0,), ((first_ms / 1e3, ninth_ms / 1e3),))
    return Costs(target, {"q4": CostCurve((1,), (0,), ((draft_ms / 1e3,),))})


def seen(controller: SpecKV, n: int = 4, accepted: int = 4, *, draft_s: float = 0.01, verify_s: float = 0.02) -> None:
    signals = tuple(Signals(i, "q4", 0.9, 0.3) for i in range(n))
    controller.observe(RoundRecord(n, accepted, draft_s, verify_s, 1 + n, 0, "q4" if n else "none", signals))


def trace(reply: str, confidence: float, accepted: int, n: int = 8) -> TraceRound:
    entropy = 3 * (1 - confidence)
    return TraceRound(
        reply, "fam", "f16", "q4", "", 0.3, n, accepted, 0.1, 0.1, 9, 0, (confidence,) * n, (entropy,) * n
    )


# -- choosing --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 20))
@settings(deadline=None)
def test_the_papers_objective_is_the_argmax_of_predicted_tokens(low: float, high: float, limit: int):
    predictor = says(lambda gamma: low if gamma == 2 else high, "tokens")
    controller = SpecKV(predictor, costs(), 48, lambda _: 0.3)
    seen(controller)
    choice = controller.choose([SIBLING], limit)
    assert choice is not None
    summary = summarise([Signals(0, "q4", 0.9, 0.3)])
    allowed = [gamma for gamma in GAMMAS if gamma <= limit] or [limit]
    assert summary is not None
    expected = predictor.acceptance(summary, 0.3, allowed) * allowed
    assert expected[allowed.index(choice.n)] == pytest.approx(max(expected))


def test_before_any_signal_it_is_the_papers_fixed_4():
    choice = SpecKV(says(lambda _: 0.9, "tokens"), costs(), 48, lambda _: 0.3).choose([SIBLING], 16)
    assert choice is not None and choice.n == 4


def test_a_rate_in_view_drafts_where_it_pays_and_not_where_it_does_not():
    sure, unsure = says(lambda _: 1.0, "rate"), says(lambda _: 0.1, "rate")
    for predictor, cost, pays in (
        (sure, costs(25, 30, 2), True),
        (unsure, costs(25, 30, 2), False),
        (sure, costs(25, 400), False),
    ):
        controller = SpecKV(predictor, cost, 48, lambda _: 0.3)
        for _ in range(5):
            seen(controller, verify_s=0.01)
        choice = controller.choose([SIBLING], 16)
        assert (choice is not None) == pays
        assert not pays or (choice is not None and choice.n == 8)


def test_after_a_while_without_drafts_it_tries_a_short_one():
    controller = SpecKV(says(lambda _: 0.1, "rate"), costs(25, 30, 2), 48, lambda _: 0.3)
    seen(controller, verify_s=0.0275)
    picks = []
    for _ in range(40):
        choice = controller.choose([SIBLING], 16)
        picks.append(choice.n if choice else 0)
        seen(controller, n=picks[-1], accepted=0, draft_s=0.002 * picks[-1], verify_s=0.025 + 0.000625 * picks[-1])
    assert set(picks) == {0, 2} and 1 <= picks.count(2) <= 3


@given(st.floats(1, 50), st.floats(1, 900), st.floats(1, 90), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_ledger_bounds_the_loss_however_wrong_the_network_is(
    first: float, more: float, draft: float, said: float, seed: int
):
    cost = costs(first, first + more, draft)
    controller = SpecKV(says(lambda _: said, "rate"), cost, 48, lambda _: 0.3)
    rng, spent, alone = np.random.default_rng(seed), 0.0, 0.0
    for _ in range(60):
        choice = controller.choose([SIBLING], 16)
        n = choice.n if choice else 0
        accepted = int(rng.integers(0, n + 1)) if said < 0.5 else 0
        verify_s = cost.verify_s(cost.padded(1 + n), 0)
        seen(controller, n, accepted, draft_s=n * draft / 1e3, verify_s=verify_s)
        spent += n * draft / 1e3 + verify_s
        alone += (1 + accepted) * first / 1e3
        assert spent <= 1.03 * alone + first / 1e3 + 1e-9
    assert controller.speedup_estimate == pytest.approx(alone / spent)


def test_a_sibling_goes_before_a_lookup_and_a_lookup_before_nothing():
    controller = SpecKV(says(lambda _: 1.0, "tokens"), costs(), 48, lambda _: 0.3)
    first, second = controller.choose([LOOKUP, SIBLING], 16), controller.choose([LOOKUP], 16)
    assert first is not None and first.index == 1
    assert second is not None and (second.index, second.n) == (0, 5)
    assert controller.choose([], 16) is None


def test_a_draft_without_measured_entropy_tells_nothing():
    assert summarise(()) is None
    assert summarise([Signals(0, "q4", 0.9, 0.3), Signals(1, "q4", 0.9)]) is None
    assert summarise([Signals(0, "q4", 0.8, 0.2), Signals(1, "q4", 0.4, 0.6)]) == pytest.approx((0.4, 0.6, 0.6, 0.4))


# -- training --------------------------------------------------------------------------------------------------------


def test_rows_hold_every_gamma_of_every_round_seen_at_every_length_of_the_one_before():
    rows = rows_of([trace("a", 0.9, 8), trace("a", 0.5, 3), trace("b", 0.1, 0)])
    assert rows.inputs.shape == (len(GAMMAS) ** 2, len(FEATURES))  # one pair of rounds; b has none before it
    assert set(zip(rows.inputs[:, -1], rows.outputs, strict=True)) == {(2, 1.0), (4, 0.75), (6, 0.5), (8, 0.375)}
    assert rows.inputs[:, 2] == pytest.approx(0.9)


def test_short_drafts_say_nothing_of_longer_gammas():
    rows = rows_of([trace("a", 0.9, 5, n=5), trace("a", 0.9, 5, n=5)])
    assert set(rows.inputs[:, -1]) == {2, 4}


def test_what_sure_drafts_promise_is_learnt_and_holds_for_unseen_replies():
    rng = np.random.default_rng(0)

    def reply(name: str) -> list[TraceRound]:
        sure = bool(rng.integers(2))  # a whole reply is easy or hard
        return [
            trace(name, 0.95 if sure else 0.3 + 0.1 * rng.random(), 8 if sure else int(rng.integers(0, 2)))
            for _ in range(12)
        ]

    predictor, fitted = train([each for i in range(40) for each in reply(str(i))], "tokens")
    assert fitted.validation_error < 0.02
    controller = SpecKV(predictor, costs(), 48, lambda _: 0.3)
    for confidence, expected in ((0.95, 8.0), (0.3, 0.5)):
        summary = summarise(trace("x", confidence, 0).signals)
        assert summary is not None
        assert predictor.acceptance(summary, 0.3, [8])[0] * 8 == pytest.approx(expected, abs=0.7)
    assert controller.limit() == 8


def test_too_few_replies_are_a_sentence():
    with pytest.raises(UsageError, match="only 1 replies"):
        train([trace("a", 0.9, 8)] * 3, "rate")


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_users_network_goes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    shipped = find_predictor()
    assert shipped is None or shipped.objective == "rate"
    own = says(lambda _: 0.5, "tokens")
    user_predictor_path().write_text(own.as_text())
    found = find_predictor()
    assert found is not None and found.as_text() == own.as_text()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "\udcff"])
def test_a_damaged_network_is_a_sentence(tmp_path: Path, text: str):
    path = tmp_path / "speckv.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileError, match="gamma train"):
        read_predictor(path)
    with pytest.raises(FileError, match="cannot be read"):
        read_predictor(tmp_path / "none.json")


# -- output ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["tokens", "rate"])
@pytest.mark.parametrize("agree", [0.0, 0.7, 1.0])
def test_the_reply_is_the_targets_own_whatever_the_controller_does(
    rig: Callable[..., Rig], agree: float, objective: str
):
    prompt = list(b"Once upon a time")
    alone = rig(FakeModel(hashed(3))).reply(prompt, max_tokens=80)
    made = rig(FakeModel(hashed(3)), FakeModel(hashed(3, agree=agree)))
    controller = SpecKV(says(lambda _: 0.9, objective), Costs(), 48, lambda _: 0.3)
    n_vocab = made.target.context.n_vocab
    drafter = ModelDrafter("q4", made.draft, n_vocab=n_vocab, target=made.target, wants_entropy=True)
    reply = made.reply(prompt, drafter=Portfolio([drafter], controller.choose), controller=controller, max_tokens=80)
    assert (reply.tokens, reply.text) == (alone.tokens, alone.text)
    assert objective == "rate" or reply.stats.n_drafted > 0
    assert reply.stats.n_draft_reason == controller.reason


@pytest.mark.parametrize("trained", [True, False])
def test_a_session_asks_the_network_or_says_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: bool
):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(session, "find_predictor", find_predictor if trained else lambda: None)
    user_predictor_path().write_text(says(lambda _: 0.9, "tokens").as_text())
    traces = tmp_path / "t.jsonl"
    models = {"f16": FakeModel(hashed(3)), "q4": FakeModel(hashed(3, agree=0.8))}
    residents = Residents(models.__getitem__, {"f16": 1000, "q4": 300}.__getitem__)
    params = ContextParams(n_ctx=256, n_batch=64, max_rows=49, n_threads=1)
    asked = session.Session(residents, lambda _: params, traces=TraceFile(traces, "fam", "chat"))
    plan = session.ReplyPlan(list(b"Once"), "f16", "q4", GREEDY, SpeculationParams(controller="speckv"), max_tokens=40)
    stats = collect(asked.reply(plan)).stats
    assert any("gamma train" in notice for notice in asked.notices) != trained
    assert ("predicted" in stats.n_draft_reason) == trained
    rounds = read_traces(traces)
    assert len(rounds) == stats.n_rounds and {each.task for each in rounds} == {"chat"}
    assert not trained or (any(each.is_measured for each in rounds) and rounds[0].size_ratio == 0.3)
