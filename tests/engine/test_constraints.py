"""Grammars, JSON schemas, log-probabilities, full contexts and cascades, with a draft in flight and without."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from engine_rig import GREEDY, Reply, Rig, chi_square_ok, collect

from edge_specquant.engine.constraint import Constraints
from edge_specquant.engine.control.draft_length import Fixed
from edge_specquant.engine.drafters.grammar import GrammarDrafter
from edge_specquant.engine.drafters.lookup import LookupDrafter
from edge_specquant.engine.drafters.model_drafter import ModelDrafter
from edge_specquant.engine.drafters.portfolio import Portfolio
from edge_specquant.engine.prompts.shorten import forget_older_half
from edge_specquant.engine.sampling import TokenSampler
from edge_specquant.engine.stream import stream
from edge_specquant.engine.structured.form import form_of
from edge_specquant.errors import GrammarError
from edge_specquant.native.fake import FakeModel, hashed
from edge_specquant.native.model import NativeModel
from edge_specquant.params import SamplingParams
from edge_specquant.request import Request

MakeRig = Callable[..., Rig]
PROMPT = list(b"Once upon a time")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
}


FORMS = {
    "schema": {"schema": SCHEMA},
    "regex": {"regex": "(ab|cd){2,9}[0-9]"},
    "lark": {"lark": 'start: item ("," item)*\nitem: /[a-z]{1,3}/ | "<" @s0 ">"', "lark_schemas": {"one": SCHEMA}},
    "grammar": {"grammar": 'root ::= [a-z]+ "x" | "(" root ")"'},
}


def constrained(
    rig: Rig, form: dict[str, Any], n_draft: int, sampling: SamplingParams, max_tokens: int = 200, **fields: object
) -> tuple[str, tuple[int, ...], str | None]:
    model = rig.target_model
    made = form_of(Request(prompt="x", **form))
    assert made is not None
    job = rig.job(
        model.vocab.tokenize("the answer"), n_draft=n_draft, sampling=sampling, max_tokens=max_tokens, **fields
    )
    job.sampler = TokenSampler(
        sampling,
        rig.target.context.n_vocab,
        constraint=Constraints().constraint(made, model.vocab),
        eog_tokens=model.vocab.eog_tokens,
    )
    reply = collect(stream(job))
    return reply.text, reply.tokens, reply.finish_reason


@pytest.mark.parametrize("n_draft", [1, 8])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.0, seed=4)], ids=["greedy", "sampled"])
def test_a_form_holds_and_a_draft_changes_nothing(
    tiny_models: dict[str, NativeModel], rig: MakeRig, n_draft: int, sampling: SamplingParams, form: dict[str, Any]
) -> None:
    """Case A14: only accepted tokens advance the constraint; nothing after its end."""
    model = tiny_models["q8"]
    plain = constrained(rig(model), form, 0, sampling)
    drafted = constrained(rig(model, tiny_models["q4"]), form, n_draft, sampling)
    assert drafted == plain
    text, _, finish_reason = plain
    if finish_reason == "stop" and form == FORMS["schema"]:
        assert jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"grammar": "root ::= ("}, "grammar"),
        ({"schema": {"$ref": "#/nowhere"}}, "nowhere"),
        ({"regex": "(a"}, "regular expression"),
        ({"regex": "a(?=b)"}, "regular expression"),
        ({"lark": "start: nowhere"}, "Lark"),
        ({"lark": "start: @s0", "lark_schemas": {"tool 'x'": {"not": {}}}}, "tool 'x'"),
        ({"lark": "start: @s0", "lark_schemas": {"tool 'x'": {"pattern": "("}}}, "tool 'x': 'pattern' at #"),
        ({"grammar": "root ::= " + "(" * 300 + "a" + ")" * 300}, "200"),
        ({"regex": "a" * 70_000}, "65,536"),
    ],
)
def test_a_broken_form_is_a_sentence(tiny_models: dict[str, NativeModel], form: dict[str, Any], words: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(words)):
        made = form_of(Request(prompt="x", **form))
        assert made is not None
        Constraints().constraint(made, tiny_models["q8"].vocab)


RECORD = {
    "type": "object",
    "properties": {
        "first name": {"enum": ["Ada", "Grace"]},
        "is_here": {"type": "boolean"},
        "note": {"type": "string", "maxLength": 4},
    },
    "required": ["first name", "is_here", "note"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.0, seed=4)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("accept", ["match", "rejection"])
@pytest.mark.parametrize("n_draft", [1, 3, 16])
def test_forced_tokens_are_drafts_that_change_nothing_and_stand(
    tiny_models: dict[str, NativeModel], rig: MakeRig, sampling: SamplingParams, n_draft: int, accept: str
) -> None:
    model, form = tiny_models["q8"], form_of(Request(prompt="x", schema=RECORD))
    assert form is not None

    def reply(*names: str) -> Reply:
        made = rig(model, tiny_models["q4"])
        job = made.job(model.vocab.tokenize("the answer"), sampling=sampling, accept=accept, max_tokens=200)
        constraint = Constraints().constraint(form, model.vocab)
        job.sampler = TokenSampler(
            sampling, model.vocab.n_tokens, constraint=constraint, eog_tokens=model.vocab.eog_tokens
        )
        known = {"grammar": GrammarDrafter(job.sampler), "lookup": LookupDrafter()}
        if made.draft is not None:
            known["q4"] = ModelDrafter("q4", made.draft, n_vocab=model.vocab.n_tokens, target=made.target)
        job.controller = Fixed(n_draft)
        job.drafter = Portfolio([known[name] for name in names], job.controller.choose)
        return collect(stream(job))

    plain = reply()
    assert jsonschema.Draft202012Validator(RECORD).is_valid(json.loads(plain.text))
    for names in (("grammar",), ("lookup",), ("q4",), ("grammar", "lookup", "q4")):
        drafted = reply(*names)
        assert (drafted.tokens, drafted.finish_reason) == (plain.tokens, plain.finish_reason), names
        if "grammar" in names:
            assert drafted.origins.count("grammar") > len(plain.tokens) // 5
            assert n_draft == 1 or drafted.stats.n_rounds < len(plain.tokens) * 0.8


def test_a_constraint_wins_over_bias_bans_and_penalties(tiny_models: dict[str, NativeModel], rig: MakeRig) -> None:
    vocab = tiny_models["q8"].vocab
    never = dict.fromkeys(range(vocab.n_tokens), -math.inf)
    for sampling in (
        SamplingParams(temperature=0, logit_bias=never),
        SamplingParams(seed=1, logit_bias=never),
        SamplingParams(seed=1, typical_p=0.5, repeat_penalty=1.5, min_p=0.0, top_k=0),
    ):
        text, _, finish_reason = constrained(rig(tiny_models["q8"]), {"schema": {"enum": ["red"]}}, 0, sampling)
        assert (text, finish_reason) == ('"red"', "stop")


def test_what_is_chosen_is_drawn_from_the_distribution_that_is_told(tiny_models: dict[str, NativeModel]) -> None:
    """Masked before it is truncated: top-k keeps k of the tokens that may come."""
    vocab = tiny_models["q8"].vocab
    made = form_of(Request(prompt="x", regex="[a-h]"))
    assert made is not None
    row = np.random.default_rng(1).normal(0, 3, vocab.n_tokens).astype(np.float32)
    counts: Counter[int] = Counter()
    constraint = Constraints().constraint(made, vocab)
    for seed in range(1500):
        sampler = TokenSampler(
            SamplingParams(seed=seed, top_k=3, temperature=1.0),
            vocab.n_tokens,
            constraint=constraint,
            eog_tokens=vocab.eog_tokens,
        )
        counts[sampler.choose(row, 0)] += 1
    told = sampler.distribution(row, 0)
    assert len(told.ids) == 3
    assert chi_square_ok(np.array([counts[int(token)] for token in told.ids]), told.probs)


def test_a_fork_goes_its_own_way_and_forced_tokens_are_what_the_mask_leaves(
    tiny_models: dict[str, NativeModel],
) -> None:
    vocab = tiny_models["q8"].vocab
    colours = {"type": "array", "items": {"enum": ["red", "rot", "blue"]}, "minItems": 2, "maxItems": 2}
    made = form_of(Request(prompt="x", schema=colours))
    assert made is not None
    machine = Constraints().constraint(made, vocab)
    row = np.zeros(vocab.n_tokens, dtype=np.float32)
    n_forced = 0
    while not machine.is_complete:
        allowed = np.flatnonzero(np.isfinite(machine.mask(row)))
        forced = machine.forced()
        assert all(machine.allows(int(token)) for token in allowed[:50])
        assert [t for t in range(vocab.n_tokens) if machine.allows(t)] == list(allowed)
        if forced:
            assert list(allowed) == [forced[0]]
            assert machine.validate(forced) == len(forced)
            n_forced += 1
        before = machine.fork()
        machine.accept(int(allowed[0]))
        assert list(np.flatnonzero(np.isfinite(before.mask(row)))) == list(allowed)
    assert n_forced > 2


def test_a_family_has_one_tokenizer_and_outlives_the_model_it_was_made_from(tiny_gguf: Path) -> None:
    constraints, made = Constraints(), form_of(Request(prompt="x", schema=SCHEMA))
    assert made is not None
    runs = []
    for _ in range(2):
        with NativeModel(tiny_gguf, use_extra_bufts=True, vocab_only=True) as model:
            machine = constraints.constraint(made, model.vocab)
            runs.append(machine.forced())
            del machine
    assert runs[0] == runs[1] != ()


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
        job.shorten = forget_older_half(n_keep=7)
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
