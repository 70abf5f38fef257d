"""What sessions make of each kind of memory: strict replies, several at once, snapshots, reasons where none drafts."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from engine_rig import GREEDY, collect

from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.engine.caches.residents import Residents
from edge_specquant.engine.caches.snapshots import Snapshots
from edge_specquant.engine.parallel.batching import SharedModels
from edge_specquant.engine.session import ReplyPlan, Session
from edge_specquant.native.fake import FakeModel, hashed
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams, Model
from edge_specquant.params import SpeculationParams

Kinds = dict[str, tuple[NativeModel, NativeModel]]
PARAMS = ContextParams(n_ctx=512, n_batch=64, max_rows=32, n_threads=1, n_rollback=4)
NEAR_TIE = 0.1  # batches of another width add in another order; a wrong state is off by whole logits


class _Open:
    """A loaded model as a loader gives it; closing is the fixture's."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def close(self) -> None:
        """Not ours."""


def session_of(target: Model, draft: Model | None = None, snapshots: Snapshots | None = None) -> Session:
    models = {"f32": target, "q4": draft or target}
    residents = Residents(lambda name: _Open(models[name]), lambda _: 0)  # type: ignore[arg-type,return-value]
    return Session(residents, lambda _: PARAMS, snapshots)


def prompt_of(model: Model, n: int = 40) -> list[int]:
    return model.vocab.tokenize("the stone on the river and the land of the sea is in the end " * 20)[:n]


def distance_from_greedy(model: NativeModel, prompt: Sequence[int], reply: Sequence[int]) -> float:
    """By how much any token of the reply is not the likeliest, in logits: read in one go, in a context of its own."""
    text = [*prompt, *reply]
    with model.context(ContextParams(n_ctx=512, n_batch=256, max_rows=256, n_threads=1)) as context:
        rows = context.decode(text[:-1], 0, len(reply)).copy()
    rows[:, sorted(model.vocab.eog_tokens)] = -np.inf  # not before min_tokens
    return float((rows.max(axis=1) - rows[np.arange(len(reply)), list(reply)]).max())


def plan(prompt: Sequence[int], draft: str = "lookup+q4", *, max_tokens: int = 40, **wishes: object) -> ReplyPlan:
    speculation = SpeculationParams(**({"n_draft": 3} | wishes))  # type: ignore[arg-type]
    return ReplyPlan(prompt, "f32", draft, GREEDY, speculation, max_tokens=max_tokens, min_tokens=max_tokens)


@pytest.mark.parametrize("kind", ["delta", "short-conv", "mamba2", "window", "experts"])
def test_strict_replies_are_the_same_bits_whatever_drafts(kinds: Kinds, kind: str) -> None:
    model, draft = kinds[kind]
    session = session_of(model, draft)
    prompt = prompt_of(model, 300)  # beyond the 256th cell the engine's attention adds in another order
    plain = collect(session.reply(plan(prompt, "none", strict=True)))
    for n_draft in (1, 3, 8):
        drafted = collect(session.reply(plan(prompt, n_draft=n_draft, strict=True)))
        assert drafted.tokens == plain.tokens
    nobody = [notice for notice in session.notices if "nobody drafts" in notice]
    assert (drafted.stats.n_drafted > 0) != bool(nobody)
    assert kind == "mamba2" or not nobody


@pytest.mark.parametrize("kind", ["delta", "short-conv", "mamba2", "window", "experts"])
@pytest.mark.parametrize("n_users", [2, 3])
def test_several_replies_at_once_equal_each_alone(kinds: Kinds, kind: str, n_users: int) -> None:
    model, draft = kinds[kind]
    models = {"f32": model, "q4": draft}
    shared = SharedModels(lambda name: _Open(models[name]), n_users)  # type: ignore[arg-type,return-value]
    prompts = [prompt_of(model, 70 + 7 * user)[::-1] for user in range(n_users)]
    got: dict[int, list[tuple[int, ...]]] = {}

    def run(user: int) -> None:
        view = Residents(lambda name: shared.view(name, user), lambda _: 0)
        session = Session(view, lambda _: PARAMS)
        got[user] = [collect(session.reply(plan(prompts[user]))).tokens for _ in range(3)]

    threads = [threading.Thread(target=run, args=(user,)) for user in range(n_users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    for user, prompt in enumerate(prompts):
        for tokens in got[user]:
            assert len(tokens) == 40 and distance_from_greedy(model, prompt, tokens) < NEAR_TIE


@pytest.mark.parametrize("kind", ["delta", "mamba2"])
def test_who_cancels_costs_the_others_nothing(kinds: Kinds, kind: str) -> None:
    """A state that a broken batch has spoilt cannot be brought back, so a batch of several is not broken off."""
    model, _ = kinds[kind]
    shared = SharedModels(lambda _: _Open(model), 2)  # type: ignore[arg-type,return-value]
    prompts = [prompt_of(model, 60), prompt_of(model, 80)[::-1]]
    stop = threading.Event()
    sessions = [
        Session(Residents(lambda name, user=user: shared.view(name, user), lambda _: 0), lambda _: PARAMS)  # type: ignore[misc]
        for user in range(2)
    ]

    def nuisance() -> None:
        while not stop.is_set():
            timer = threading.Timer(0.003, sessions[1].cancel)
            timer.start()
            collect(sessions[1].reply(plan(prompts[1], "none", max_tokens=150)))
            timer.join()
            sessions[1].resume()

    thread = threading.Thread(target=nuisance)
    thread.start()
    try:
        replies = [collect(sessions[0].reply(plan(prompts[0], max_tokens=150))) for _ in range(4)]
    finally:
        stop.set()
        thread.join()
        shared.close()
    for reply in replies:
        assert len(reply.tokens) == 150 and distance_from_greedy(model, prompts[0], reply.tokens) < NEAR_TIE


@pytest.mark.parametrize("kind", ["delta", "mamba2", "window"])
def test_two_conversations_in_turn(kinds: Kinds, kind: str) -> None:
    """Snapshots bring a conversation back with its states; its next turn decodes what is new."""
    model, draft = kinds[kind]
    session = session_of(model, draft, Snapshots(1 << 26))
    first, second = prompt_of(model, 90), prompt_of(model, 120)[::-1]
    for _ in range(3):
        for history in (first, second):
            reply = collect(session.reply(plan(history)))
            assert reply.tokens == collect(session_of(model).reply(plan(history, "none"))).tokens
            history += [*reply.tokens, *prompt_of(model, 12)]
    assert reply.stats.n_cached >= len(second) - 40 - 12 - 13


@pytest.mark.parametrize("controller", ["goodput", "fixed", "entropy"])
def test_all_controllers_count_what_states_cost(kinds: Kinds, controller: str) -> None:
    model, draft = kinds["mamba2"]
    prompt = prompt_of(model) * 2
    plain = collect(session_of(model).reply(plan(prompt, "none", max_tokens=100)))
    session = session_of(model, draft)
    reply = collect(session.reply(plan(prompt, max_tokens=100, n_draft=None, controller=controller)))
    assert reply.tokens == plain.tokens


def test_where_neither_dropping_nor_saving_works_nobody_drafts() -> None:
    model = FakeModel(hashed(3), can_truncate=False, can_save=False)
    session = session_of(model)
    prompt = list(b"a prompt of some length that is read once, and no more than once, by this model")
    plain = collect(session.reply(plan(prompt, "none")))
    drafted = collect(session.reply(plan(prompt)))
    assert drafted.tokens == plain.tokens and drafted.stats.n_drafted == 0
    assert any("can neither drop rejected tokens nor be saved" in notice for notice in session.notices)


def test_a_state_saved_costs_the_controller_and_a_state_not_needed_nothing() -> None:
    cache = KVCache(FakeModel(hashed(3), can_truncate=False).context(PARAMS))
    cache.extend(list(b"some text"))
    assert cache.undo_s(3) == (0.0, 0.0)
    cache.brace()
    cache.extend(list(b"more"))
    assert cache.truncate(10) is False and cache.n_past == 9
    saved, restored = cache.undo_s(3) or (0.0, 0.0)
    assert saved == 0.0 and restored > 0.0  # the state of now is the one that was kept
    cache.extend(list(b"more"))
    assert (cache.undo_s(3) or (0.0, 0.0))[0] > 0.0
    assert KVCache(FakeModel(hashed(3)).context(PARAMS)).undo_s(3) is None
