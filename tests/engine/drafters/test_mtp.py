"""The next-token layer as drafter: output unchanged, cells in step, and all accepted where it knows what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from engine_rig import GREEDY, Reply, collect, newer_half

from edge_specquant.engine.caches.residents import Residents
from edge_specquant.engine.drafters.mtp_drafter import HeadCells, HiddenStates
from edge_specquant.engine.session import ReplyPlan, Session
from edge_specquant.native.library.hidden import functions
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.native.selftest.tiny_kinds import Array, Sizes, write_tiny_kind
from edge_specquant.params import SamplingParams, SpeculationParams

PARAMS = ContextParams(n_ctx=512, n_batch=64, max_rows=32, n_threads=1, n_rollback=8)
SAMPLED = SamplingParams(temperature=0.9, seed=11)


def _knowing(name: str, values: Array) -> Array:
    """A trunk whose next token depends on the last one alone, and a head that computes the same."""
    if name.endswith(("attn_output.weight", "ffn_down.weight", "ssm_out.weight")):
        return np.zeros_like(values)
    if name.endswith("eh_proj.weight"):
        return np.concatenate([np.eye(len(values)), np.zeros((len(values), len(values)))], axis=1).astype(np.float32)
    return values


def _echoing(name: str, values: Array) -> Array:
    """The same trunk; its head reads the hidden state alone, and so says again what the target last said."""
    if name.endswith("eh_proj.weight"):
        return np.concatenate([np.zeros((len(values), len(values))), np.eye(len(values))], axis=1).astype(np.float32)
    return _knowing(name, values)


def _half_knowing(name: str, values: Array) -> Array:
    """A knowing head whose embedding of the token is disturbed: right for some tokens."""
    made = _knowing(name, values)
    if name.endswith("eh_proj.weight"):
        made = made + np.random.default_rng(5).normal(0, 0.02, made.shape).astype(np.float32)
    return made


CHANGES = {
    "random": lambda _name, values: values,
    "knowing": _knowing,
    "half-knowing": _half_knowing,
    "echoing": _echoing,
}


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NativeModel]]:
    """Gated delta nets with a next-token layer."""
    folder = tmp_path_factory.mktemp("mtp")
    made = {
        name: NativeModel(
            write_tiny_kind(folder / f"{name}.gguf", "delta", sizes=Sizes(n_nextn=1), dtype="F32", change=change),
            use_extra_bufts=True,
            load_mtp=True,
        )
        for name, change in CHANGES.items()
    }
    yield made
    for model in made.values():
        model.close()


class _Open:
    """A loaded model as a loader gives it; closing is the fixture's."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def close(self) -> None:
        """Not ours."""


def session_of(model: NativeModel) -> Session:
    return Session(Residents(lambda _: _Open(model), lambda _: 0), lambda _: PARAMS)  # type: ignore[arg-type,return-value]


def ask(
    session: Session, prompt: Sequence[int], draft: str = "mtp", *, max_tokens: int = 48, **wishes: object
) -> Reply:
    sampling = wishes.pop("sampling", GREEDY)
    shorten = wishes.pop("shorten", None)
    speculation = SpeculationParams(**({"n_draft": 3} | wishes))  # type: ignore[arg-type]
    plan = ReplyPlan(
        prompt,
        "f32",
        draft,
        sampling,
        speculation,
        max_tokens=max_tokens,
        min_tokens=max_tokens,
        shorten=shorten,  # type: ignore[arg-type]
    )
    return collect(session.reply(plan))


def prompt_of(model: NativeModel, n: int = 40) -> list[int]:
    return model.vocab.tokenize("the stone on the river and the land of the sea is in the end " * 20)[:n]


def test_this_engine_shows_hidden_states() -> None:
    assert functions() is not None


@pytest.mark.parametrize("n_draft", [1, 3, 8, 16])
@pytest.mark.parametrize("name", CHANGES)
def test_a_head_changes_nothing(heads: dict[str, NativeModel], name: str, n_draft: int) -> None:
    model = heads[name]
    prompt = prompt_of(model, 100)
    for sampling in (GREEDY, SAMPLED):
        plain = ask(session_of(model), prompt, "none", sampling=sampling)
        drafted = ask(session_of(model), prompt, n_draft=n_draft, sampling=sampling)
        assert drafted.tokens == plain.tokens
        assert drafted.stats.drafted_by.get("mtp", 0) > 0


def test_a_head_that_knows_is_always_right(heads: dict[str, NativeModel]) -> None:
    reply = ask(session_of(heads["knowing"]), prompt_of(heads["knowing"]), n_draft=3, max_tokens=80)
    assert reply.stats.acceptance_rate == 1.0
    half = ask(session_of(heads["half-knowing"]), prompt_of(heads["half-knowing"]), n_draft=3, max_tokens=80)
    assert half.stats.acceptance_rate is not None and 0.1 < half.stats.acceptance_rate < 1.0


def test_a_head_reads_the_state_of_the_token_before(heads: dict[str, NativeModel]) -> None:
    """An echo of the target's state is the token that the target chose there: the one the draft goes on from."""
    model = heads["echoing"]
    seen: list[tuple[int, int]] = []
    with model.context(PARAMS) as context, model.context(ContextParams(n_ctx=512, n_batch=64, is_mtp=True)) as head:
        assert context.keep_hidden()
        states = HiddenStates(context.n_embd)
        cells = HeadCells(head, states)
        history = prompt_of(model, 30)
        rows = context.decode(history, 0, 1)
        states.watch(0, history, context.hidden(len(history)))
        for _ in range(20):
            history.append(int(rows[-1].argmax()))
            seen.append((history[-1], int(cells.catch_up(history)[-1].argmax())))
            rows = context.decode(history[-1:], len(history) - 1, 1)
            states.watch(len(history) - 1, history[-1:], context.hidden(1))
    assert all(said == echoed for said, echoed in seen)


@pytest.mark.parametrize("name", ["random", "half-knowing"])
def test_cells_are_those_of_a_head_that_saw_it_all_at_once(heads: dict[str, NativeModel], name: str) -> None:
    """After rounds of drafts, rejections and catching up, the head says what a fresh one says of the same text."""
    model = heads[name]
    session = session_of(model)
    prompt = prompt_of(model, 50)
    reply = ask(session, prompt, n_draft=4)
    used = session._heads["f32"].cells
    history = [*prompt, *reply.tokens]
    used.truncate(len(history) - 6)
    session._caches["f32"][1].hold(history[:-1])
    after = used.catch_up(history)[-1].copy()
    with model.context(PARAMS) as context, model.context(ContextParams(n_ctx=512, n_batch=64, is_mtp=True)) as head:
        context.keep_hidden()
        states = HiddenStates(context.n_embd)
        for start in range(0, len(history) - 1, 40):
            part = history[start : min(start + 40, len(history) - 1)]
            context.decode(part, start, 1)
            states.watch(start, part, context.hidden(len(part)))
        fresh = HeadCells(head, states).catch_up(history)[-1].copy()
    assert np.abs(after - fresh).max() < 0.02


def test_the_next_turn_another_reply_and_a_shift(heads: dict[str, NativeModel]) -> None:
    model = heads["half-knowing"]
    session = session_of(model)
    prompt = prompt_of(model, 120)
    first = ask(session, prompt)
    following = [*prompt, *first.tokens, *prompt_of(model, 20)]
    second = ask(session, following)
    assert second.tokens == ask(session_of(model), following, "none").tokens
    assert ask(session, prompt).tokens == first.tokens
    long = ask(session, prompt, max_tokens=500, shorten=newer_half)
    assert long.stats.n_shifted > 0
    assert long.tokens == ask(session_of(model), prompt, "none", max_tokens=500, shorten=newer_half).tokens


def test_a_head_among_others_and_under_the_rejection_rule(heads: dict[str, NativeModel]) -> None:
    model = heads["half-knowing"]
    prompt = prompt_of(model, 60)
    plain = ask(session_of(model), prompt, "none", max_tokens=100)
    together = ask(session_of(model), prompt, "lookup+mtp", max_tokens=100, n_draft=None)
    assert together.tokens == plain.tokens
    strict = ask(session_of(model), prompt, "lookup+mtp", strict=True)
    assert strict.tokens == ask(session_of(model), prompt, "none", strict=True).tokens
    by_rejection = ask(session_of(model), prompt, sampling=SAMPLED, accept="rejection")
    assert 0 < by_rejection.stats.n_accepted < by_rejection.stats.n_drafted


def test_without_a_head_there_is_a_reason(
    heads: dict[str, NativeModel], kinds: dict[str, tuple[NativeModel, NativeModel]]
) -> None:
    session = session_of(kinds["delta"][0])
    reply = ask(session, prompt_of(heads["random"]), "mtp")
    assert reply.stats.n_drafted == 0
    assert any("mtp does not draft: f32 was loaded with no next-token layers" in notice for notice in session.notices)
