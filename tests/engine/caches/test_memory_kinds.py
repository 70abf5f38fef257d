"""Whatever the memory of a model is, a draft changes nothing: attention, windows that move on, experts, and recurrent
states that roll back, or are saved and restored. The real engine on tiny random models of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from engine_rig import GREEDY, Reply, Rig, collect, newer_half

from edge_specquant.engine.control.draft_length import Fixed
from edge_specquant.engine.drafters.draft import NOTHING, Draft, GoOn, NoDrafter
from edge_specquant.engine.drafters.lookup import LookupDrafter
from edge_specquant.engine.drafters.redo import RedoController, RedoDrafter, agreement
from edge_specquant.engine.sampling import TokenSampler
from edge_specquant.engine.signals import Offer
from edge_specquant.engine.stream import stream
from edge_specquant.native.model import NativeModel
from edge_specquant.params import SamplingParams

MakeRig = Callable[..., Rig]
N = 48
SAMPLED = SamplingParams(temperature=0.9, seed=7)
# How each kind can take tokens back: "delta" by copies of its states and without them, "window" with all cells and
# with those of the window only.
WAYS = {
    "delta, rolled back": ("delta", {"n_rollback": 8}),
    "delta, saved": ("delta", {}),
    "short-conv, rolled back": ("short-conv", {"n_rollback": 3}),
    "mamba2, saved": ("mamba2", {"n_rollback": 8}),
    "window, all cells": ("window", {}),
    "window, saved": ("window", {"swa_full": False}),
    "experts": ("experts", {}),
}


class Way:
    """A kind of model with a way to take tokens back."""

    def __init__(
        self, name: str, model: NativeModel, draft: NativeModel, context: dict[str, int], rig: MakeRig
    ) -> None:
        self.name, self.model, self.draft, self.context, self._rig = name, model, draft, context, rig

    def rig(self, *, draft: bool = False, **context: int) -> Rig:
        return self._rig(self.model, self.draft if draft else None, **(self.context | context))

    def prompt(self, n: int = 24) -> list[int]:
        text = self.model.vocab.tokenize("the stone on the river and the land of the sea is in the end " * 20)
        return text[:n]

    def plain(self, prompt: Sequence[int], **fields: object) -> Reply:
        return self.rig().reply(prompt, **({"max_tokens": N} | fields))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, kinds: dict[str, tuple[NativeModel, NativeModel]], rig: MakeRig) -> Way:
    kind, context = WAYS[request.param]
    return Way(request.param, *kinds[kind], context, rig)


class HalfWrong:
    """Proposes a known reply with some tokens changed at random."""

    name = "half-wrong"
    decode_s = 0.0

    def __init__(self, n_prompt: int, reply: Sequence[int], n_vocab: int, p_right: float) -> None:
        self._reply, self._n_prompt, self._n_vocab, self._p = tuple(reply), n_prompt, n_vocab, p_right
        self._random = np.random.default_rng(len(reply))

    def begin(self, history: Sequence[int]) -> None:
        """Nothing to do."""

    def offer(self, history: Sequence[int]) -> Offer | None:
        return Offer(self.name, len(self._reply))

    def propose(self, history: Sequence[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        at = len(history) - self._n_prompt
        tokens = [
            token if self._random.random() < self._p else int(self._random.integers(self._n_vocab))
            for token in self._reply[at : at + limit]
        ]
        return Draft(tuple(tokens), (self.name,) * len(tokens)) if tokens else NOTHING

    def accepted(self, n: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to free."""


def half_wrong(prompt: Sequence[int], plain: Reply, model: NativeModel, p_right: float = 0.7) -> HalfWrong:
    return HalfWrong(len(prompt), plain.tokens, model.vocab.n_tokens, p_right)


@pytest.mark.parametrize("n_draft", [1, 3, 8, 16])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_rejections_leave_no_trace(way: Way, n_draft: int, sampling: SamplingParams) -> None:
    prompt = way.prompt()
    plain = way.plain(prompt, sampling=sampling)
    for p_right in (0.4, 0.75):
        drafter = half_wrong(prompt, plain, way.model, p_right)
        reply = way.rig().reply(prompt, drafter=drafter, n_draft=n_draft, max_tokens=N, sampling=sampling)
        assert reply.tokens == plain.tokens
        assert 0 < reply.stats.n_accepted < reply.stats.n_drafted


@pytest.mark.parametrize("n_draft", [1, 3, 8, 16])
def test_a_sibling_drafts(way: Way, n_draft: int) -> None:
    prompt = way.prompt()
    reply = way.rig(draft=True).reply(prompt, n_draft=n_draft, max_tokens=N)
    assert reply.tokens == way.plain(prompt).tokens
    assert reply.stats.n_accepted > 0


def test_a_look_up_drafts(way: Way) -> None:
    prompt = way.prompt()
    prompt += [*way.plain(prompt).tokens, *prompt]
    reply = way.rig().reply(prompt, drafter=LookupDrafter(), n_draft=7, max_tokens=N)
    assert reply.tokens == way.plain(prompt).tokens


def test_the_target_accepts_itself_from_transplanted_cells(way: Way) -> None:
    """A long prompt is copied from the target's memory, states and all: the draft decodes none of it."""
    prompt = way.prompt(200)
    made = way._rig(way.model, way.model, **way.context)
    reply = made.reply(prompt, n_draft=3, max_tokens=24)
    assert reply.tokens == way.plain(prompt, max_tokens=24).tokens
    assert reply.stats.acceptance_rate is not None and reply.stats.acceptance_rate > 0.9
    assert made.draft is not None and made.draft.n_past >= len(prompt)


def test_a_broken_off_reply_and_another_after_it(way: Way) -> None:
    prompt = way.prompt(100)
    plain = way.plain(prompt)
    made = way.rig(draft=True)
    events = stream(made.job(prompt, n_draft=5, max_tokens=N))
    for _ in range(9):
        next(events)
    events.close()
    for cache in (made.target, made.draft):
        assert cache is not None and cache.n_past == cache.context.used()
    assert made.reply(prompt, n_draft=5, max_tokens=N).tokens == plain.tokens


def test_a_cancel_in_mid_reply_loses_nothing(way: Way) -> None:
    prompt = way.prompt(100)
    plain = way.plain(prompt)
    made = way.rig()
    events = stream(made.job(prompt, drafter=half_wrong(prompt, plain, way.model), n_draft=3, max_tokens=N))
    for _ in range(5):
        next(events)
    made.target.context.abort()
    assert collect(events).finish_reason == "cancelled"
    made.target.context.resume()
    assert made.target.n_past == made.target.context.used()
    again = made.reply(prompt, drafter=half_wrong(prompt, plain, way.model), n_draft=3, max_tokens=N)
    assert again.tokens == plain.tokens


def test_the_next_turn_and_another_reply_decode_no_turn_again(way: Way) -> None:
    prompt = way.prompt(150)
    made = way.rig()
    first = made.reply(prompt, drafter=half_wrong(prompt, way.plain(prompt), way.model), n_draft=3, max_tokens=N)
    following = [*prompt, *first.tokens, *way.prompt(90)]
    second = made.reply(following, max_tokens=N)
    assert second.stats.n_cached >= len(prompt) + len(first.tokens) - 1
    assert second.tokens == way.plain(following).tokens
    for turn, reply in ((following, second), (prompt, first)):  # another reply to the last turn, then to the first
        again = made.reply(turn, max_tokens=N)
        assert again.stats.n_cached == len(turn) - 1
        assert again.tokens == reply.tokens


def test_a_full_context_shifts(way: Way) -> None:
    prompt = way.prompt(40)
    fields: dict[str, object] = {"max_tokens": 120, "min_tokens": 120, "shorten": newer_half}
    plain = way.rig(n_ctx=128).reply(prompt, **fields)
    assert plain.stats.n_shifted > 0
    for drafted in (
        way.rig(draft=True, n_ctx=128).reply(prompt, n_draft=3, **fields),
        way.rig(n_ctx=128).reply(prompt, n_draft=8, drafter=half_wrong(prompt, plain, way.model), **fields),
    ):
        assert drafted.tokens == plain.tokens


def test_a_redo_agrees_as_far_as_it_does(way: Way) -> None:
    prompt = way.prompt()
    plain = way.plain(prompt)
    earlier = [*plain.tokens[:20], *reversed(plain.tokens[20:])]
    made = way.rig()
    redo = RedoDrafter(earlier, NoDrafter())
    reply = made.reply(prompt, drafter=redo, controller=RedoController(redo, Fixed(0), 48), max_tokens=N)
    assert reply.tokens == plain.tokens
    assert reply.origins.count("agreed") >= 18
    assert agreement(made.target, prompt, earlier) >= 20
    assert made.reply(prompt, max_tokens=N).tokens == plain.tokens


def test_a_saved_branch_comes_back(way: Way) -> None:
    prompt = way.prompt(100)
    made = way.rig()
    first = made.reply(prompt, max_tokens=N)
    tokens, state = list(made.target.tokens), made.target.save()
    made.reply(way.prompt(70)[::-1], max_tokens=8)
    assert made.target.restore(tokens, state)
    following = [*prompt, *first.tokens, *way.prompt(10)]
    plain = way.plain(following)
    reply = made.reply(following, drafter=half_wrong(following, plain, way.model), n_draft=3, max_tokens=N)
    assert reply.stats.n_cached == len(tokens)
    assert reply.tokens == plain.tokens
