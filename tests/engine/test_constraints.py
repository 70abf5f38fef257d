"""Grammars, JSON schemas, log-probabilities, full contexts and cascades, with a draft in flight and without."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from engine_rig import GREEDY, Rig, collect

from edge_specquant.engine.drafters.model_drafter import ModelDrafter
from edge_specquant.engine.sampling import TokenSampler
from edge_specquant.engine.stream import stream
from edge_specquant.errors import GrammarError
from edge_specquant.native.fake import FakeModel, hashed
from edge_specquant.native.model import NativeModel
from edge_specquant.native.sampler import Grammar
from edge_specquant.native.schema import schema_to_gbnf
from edge_specquant.params import SamplingParams

MakeRig = Callable[..., Rig]
PROMPT = list(b"Once upon a time")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
}


def constrained(
    rig: Rig, gbnf: str, n_draft: int, sampling: SamplingParams, max_tokens: int = 200
) -> tuple[str, object]:
    model = rig.target_model
    job = rig.job(model.vocab.tokenize("the answer"), n_draft=n_draft, sampling=sampling, max_tokens=max_tokens)
    grammar = Grammar(gbnf, model.vocab.handle, rig.target.context.n_vocab)  # type: ignore[attr-defined]
    job.sampler = TokenSampler(sampling, rig.target.context.n_vocab, grammar=grammar, eog_tokens=model.vocab.eog_tokens)
    reply = collect(stream(job))
    return reply.text, (reply.tokens, reply.finish_reason)


@pytest.mark.parametrize("n_draft", [1, 3, 8])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.0, seed=4)], ids=["greedy", "sampled"])
def test_a_grammar_holds_and_a_draft_changes_nothing(
    tiny_models: dict[str, NativeModel], rig: MakeRig, n_draft: int, sampling: SamplingParams
) -> None:
    """Case A14: only accepted tokens advance the grammar; valid JSON, nothing after its end."""
    gbnf = schema_to_gbnf(SCHEMA)
    model = tiny_models["q8"]
    plain = constrained(rig(model), gbnf, 0, sampling)
    drafted = constrained(rig(model, tiny_models["q4"]), gbnf, n_draft, sampling)
    assert drafted == plain
    text, (_, finish_reason) = plain  # type: ignore[misc]
    if finish_reason == "stop":
        assert set(json.loads(text)) == {"a", "b"}


def test_a_broken_grammar_is_a_sentence(tiny_models: dict[str, NativeModel]) -> None:
    vocab = tiny_models["q8"].vocab
    with pytest.raises(GrammarError, match="grammar"):
        Grammar("root ::= (", vocab.handle, vocab.n_tokens)
    with pytest.raises(GrammarError, match="schema"):
        schema_to_gbnf({"$ref": "#/nowhere"})


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.8, seed=2, repeat_penalty=1.3)])
def test_logprobs_are_the_same_with_a_draft(rig: MakeRig, sampling: SamplingParams) -> None:
    def reply(n_draft: int) -> list[object]:
        made = rig(FakeModel(hashed(1)), FakeModel(hashed(1, agree=0.6)))
        job = made.job(PROMPT, n_draft=n_draft, max_tokens=30, sampling=sampling)
        job.n_logprobs = 3
        return [event.logprobs for event in collect(stream(job)).events[:-1]]

    plain = reply(0)
    assert plain == reply(5)
    for each in plain:
        assert each is not None
        assert [p for _, p in each.top] == sorted((p for _, p in each.top), reverse=True)  # type: ignore[attr-defined]
        assert each.logprob <= 0 and each.processed <= 0  # type: ignore[attr-defined]


def test_greedy_top_logprob_is_the_softmax(rig: MakeRig) -> None:
    made = rig(FakeModel(hashed(1)))
    job = made.job(PROMPT, max_tokens=1)
    job.n_logprobs = 2
    event = collect(stream(job)).events[0]
    row = hashed(1)(PROMPT).astype(np.float64)
    expected = row - np.log(np.exp(row - row.max()).sum()) - row.max()
    assert event.logprobs is not None
    assert event.logprobs.logprob == pytest.approx(expected.max())
    assert event.logprobs.top[0] == (event.token_id, pytest.approx(expected.max()))


@pytest.mark.parametrize("n_draft", [0, 3, 9])
def test_a_shifting_context_goes_on_and_keeps_the_beginning(rig: MakeRig, n_draft: int) -> None:
    def reply(n: int) -> tuple[int, ...]:
        target = FakeModel(hashed(1))
        made = rig(target, FakeModel(hashed(1, agree=0.7)), n_ctx=96, max_rows=17)
        job = made.job(PROMPT, n_draft=n, max_tokens=300)
        job.n_keep = 7
        tokens = collect(stream(job)).tokens
        assert made.target.tokens[:7] == PROMPT[:7]
        assert made.target.n_past <= 96
        return tokens

    assert len(reply(n_draft)) == 300
    assert reply(n_draft) == reply(0)


@pytest.mark.parametrize("n_riders", [0, 1, 3, 7])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.7, seed=9)], ids=["greedy", "sampled"])
def test_lookup_inside_the_draft_changes_neither_draft_nor_reply(
    rig: MakeRig, n_riders: int, sampling: SamplingParams
) -> None:
    """A cascade: the draft's tokens are the same as without riders, in fewer forwards where the text repeats."""

    def periodic(history: tuple[int, ...]) -> np.ndarray:
        row = np.zeros(260, dtype=np.float32)
        row[97 + (len(history) * 7) % 11] = 9.0
        row[256:] = -30
        return row

    draft = FakeModel(periodic)
    made = rig(FakeModel(periodic), draft)
    assert made.draft is not None
    drafter = ModelDrafter("q4", made.draft, n_vocab=260, target=None, ride_along=lambda _: n_riders)
    reply = made.reply(PROMPT, max_tokens=80, n_draft=8, drafter=drafter, sampling=sampling)
    assert reply.tokens == rig(FakeModel(periodic)).reply(PROMPT, max_tokens=80, sampling=sampling).tokens
    assert made.draft.tokens == draft.contexts[0].cells[0]
    if n_riders >= 3 and sampling is GREEDY:
        assert len(draft.contexts[0].widths) < reply.stats.n_drafted
