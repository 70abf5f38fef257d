"""Thinking: which token belongs to which part, budgets, and that a draft changes nothing across the boundary."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from chat_templates import MAKERS
from engine_rig import GREEDY, Reply, Rig, collect
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.engine.constraint import Constraints
from edge_specquant.engine.drafters.lookup import LookupDrafter
from edge_specquant.engine.drafters.model_drafter import ModelDrafter
from edge_specquant.engine.stream import stream
from edge_specquant.engine.structured.form import form_of
from edge_specquant.engine.thoughts.parts import parts_of
from edge_specquant.engine.thoughts.sampler import ThoughtSampler
from edge_specquant.engine.thoughts.style import Style, Wish, read_style, resolve
from edge_specquant.native.fake import N_BYTES, FakeModel, FakeVocab, one_hot
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import Logits
from edge_specquant.params import SamplingParams
from edge_specquant.request import Request

MakeRig = Callable[..., Rig]
PAIR = FakeVocab(tags=("<think>", "</think>"))
SPELLED = FakeVocab()
HARMONY = FakeVocab(tags=("<|start|>", "<|channel|>", "<|message|>", "<|end|>"))
STYLE, CHANNELS = Style(gap="\n\n"), Style(is_harmony=True)
SAMPLED = SamplingParams(temperature=1.1, seed=9)


def says(vocab: FakeVocab, prompt: str, reply: str, spread: float = 0.0) -> FakeModel:
    """Says the reply, whatever a budget puts between: it looks for what it has said of it after the last forced part.

    The next byte is told by where the history's longest known end stands in the reply.
    """
    script = [*vocab.tokenize(reply, parse_special=True), N_BYTES]
    n_prompt = len(vocab.tokenize(prompt, parse_special=True))

    def next_logits(history: Sequence[int]) -> Logits:
        position = min(len(history) - n_prompt, len(script) - 1)
        return one_hot(script[max(position, 0)], vocab.n_tokens)

    return FakeModel(next_logits, vocab=vocab)


def thinks(
    rig: Rig,
    style: Style,
    prompt: str,
    wish: Wish | None = None,
    *,
    continues: bool = False,
    n_draft: int = 0,
    sampling: SamplingParams = GREEDY,
    lookup: bool = False,
    **fields: object,
) -> Reply:
    vocab = rig.target_model.vocab
    ids = vocab.tokenize(prompt, parse_special=True)
    parts = parts_of(style, vocab, ids, wish or Wish(), continues=continues)
    job = rig.job(ids, n_draft=n_draft, drafter=LookupDrafter() if lookup else None, sampling=sampling, **fields)
    job.parts = parts
    job.sampler = ThoughtSampler(sampling, rig.target.context.n_vocab, parts=parts, eog_tokens=vocab.eog_tokens)
    return collect(stream(job))


def told(reply: Reply) -> tuple[str, str]:
    return "".join(event.thought for event in reply.events), reply.text


@pytest.mark.parametrize(
    ("vocab", "style", "prompt", "reply", "thought", "answer"),
    [
        (PAIR, STYLE, "q:", "<think>\nhm, so\n</think>\n\nYes.", "hm, so", "Yes."),
        (PAIR, STYLE, "q:<think>\n", "hm\n</think>\nYes.", "hm", "Yes."),
        (PAIR, STYLE, "q:<think>\n\n</think>\n\n", "Yes.", "", "Yes."),
        (PAIR, STYLE, "q:", "Yes <b>.", "", "Yes <b>."),
        (PAIR, STYLE, "q:", "<think>never ends ", "never ends", ""),
        (PAIR, STYLE, "q:", "<think>a</think>", "a", ""),
        (SPELLED, STYLE, "q:", "<think>\na < b</thin</think>\n\nYes.", "a < b</thin", "Yes."),
        (SPELLED, STYLE, "q:<think>\n", "so</think>Yes</think>.", "so", "Yes</think>."),
        (SPELLED, STYLE, "q:", "<think>cut </thi", "cut </thi", ""),
        (
            HARMONY,
            CHANNELS,
            "<|start|>user<|message|>q<|end|><|start|>assistant",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
            "hm",
            "Yes.",
        ),
        (HARMONY, CHANNELS, "<|start|>assistant<|channel|>final<|message|>Ye", "s.", "", "s."),
        (HARMONY, CHANNELS, "<|start|>assistant<|channel|>analysis<|message|>h", "m<|end|>", "m", ""),
    ],
)
def test_thought_and_answer_are_told_apart(
    rig: MakeRig, vocab: FakeVocab, style: Style, prompt: str, reply: str, thought: str, answer: str
) -> None:
    got = thinks(rig(says(vocab, prompt, reply)), style, prompt)
    assert told(got) == (thought, answer)
    spelled = b"".join(vocab.piece(e.token_id or 0) for e in got.events[:-1] if e.part == "answer")
    assert spelled.decode() == answer, "the answer's tokens spell the answer and nothing else"
    parts = [event.part for event in got.events[:-1]]
    assert parts == sorted(parts, reverse=True), "first the thought, then the answer"
    assert got.stats.n_thought == parts.count("thought")


def test_an_answer_that_begins_like_a_spelled_marker_is_an_answer(rig: MakeRig) -> None:
    """Its first letters are held back until it is certain; then none of it was a thought."""
    got = thinks(rig(says(SPELLED, "q:", "<thing> is HTML")), STYLE, "q:")
    assert (*told(got), got.stats.n_thought) == ("", "<thing> is HTML", 0)


def test_white_space_before_an_answer_without_a_thought_is_kept(rig: MakeRig) -> None:
    assert told(thinks(rig(says(PAIR, "q:", " \nYes.")), STYLE, "q:")) == ("", " \nYes.")


def test_a_marker_in_the_text_of_a_caller_opens_nothing(rig: MakeRig) -> None:
    """The vocabulary has the tag, so its letters are letters."""
    model = says(PAIR, "q:_______", "Yes.")
    ids = [*b"q:<think>"]
    parts = parts_of(STYLE, PAIR, ids, Wish())
    assert parts.accept(89).part == "answer"
    del model


@pytest.mark.parametrize("n", [0, 1, 3, 7])
@pytest.mark.parametrize("opened", ["", "<think>\n"], ids=["by the model", "by the template"])
def test_a_budget_closes_the_thought_after_so_many_tokens(rig: MakeRig, n: int, opened: str) -> None:
    reply = ("" if opened else "<think>") + "abcdefghijklmnopqrstuvwxyz" * 3
    got = thinks(rig(says(PAIR, "q:" + opened, reply)), STYLE, "q:" + opened, Wish(budget=n), max_tokens=40)
    thought, answer = told(got)
    assert thought == "abcdefghijklmnopqrstuvwxyz"[:n]
    said = b"".join(PAIR.piece(token) for token in got.tokens).decode()
    assert said.removeprefix("<think>").startswith(thought + ("\n" if n or opened else "\n\n") + "</think>\n\n")
    assert answer and answer in reply


def test_off_and_on_where_the_template_has_no_switch(rig: MakeRig) -> None:
    off = thinks(rig(says(PAIR, "q:", "x" * 30)), STYLE, "q:", Wish("off"), max_tokens=20)
    assert told(off)[0] == "" and told(off)[1].strip("x") == ""
    opened = thinks(rig(says(PAIR, "q:<think>\n", "x" * 30)), STYLE, "q:<think>\n", Wish("off"), max_tokens=20)
    assert told(opened)[0] == "" and told(opened)[1]
    on = thinks(rig(says(PAIR, "q:", "?so</think>Yes")), STYLE, "q:", Wish("on"))
    assert told(on) == ("so", "Yes"), "the opening is put in, not waited for"
    final = thinks(rig(says(HARMONY, "<|start|>assistant", "x" * 30)), CHANNELS, "<|start|>assistant", Wish("off"))
    assert told(final)[0] == "" and set(told(final)[1]) == {"x"}


def test_a_message_that_is_continued_opens_no_thought(rig: MakeRig) -> None:
    got = thinks(rig(says(PAIR, "q:Yes", ", sir.")), STYLE, "q:Yes", Wish("on"), continues=True)
    assert told(got) == ("", ", sir.")


def test_stop_strings_count_in_the_answer_alone(rig: MakeRig) -> None:
    reply = "<think>one. two.</think>three. four."
    got = thinks(rig(says(PAIR, "q:", reply)), STYLE, "q:", stops=["."])
    assert (*told(got), got.finish_reason) == ("one. two.", "three", "stop")


def babble(vocab: FakeVocab, seed: int, agree: float = 1.0) -> FakeModel:
    """Random text from few letters with many markers in it."""
    import numpy as np

    def next_logits(history: Sequence[int]) -> Logits:
        key = [seed, *(int(token) + 1 for token in history[-3:])]
        rng = np.random.default_rng(key)
        row = np.full(vocab.n_tokens, -30.0, dtype=np.float32)
        letters = [*b"ab\n", *range(N_BYTES, vocab.n_tokens)]
        row[letters] = rng.normal(0, 2, len(letters))
        row[N_BYTES : N_BYTES + 2] -= 4
        if agree < 1 and np.random.default_rng([*key, 5]).random() > agree:
            row[97] += 6
        return row

    return FakeModel(next_logits, vocab=vocab)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.3, 0.8, 1.0]),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([None, 0, 1, 4, 9]),
    st.sampled_from(["auto", "on", "off"]),
    st.sampled_from([(PAIR, STYLE, "q:"), (PAIR, STYLE, "q:<think>\n"), (HARMONY, CHANNELS, "<|start|>assistant")]),
    st.sampled_from([GREEDY, SAMPLED]),
    st.booleans(),
)
def test_a_draft_changes_nothing(
    seed: int,
    agree: float,
    n_draft: int,
    budget: int | None,
    think: str,
    setting: tuple[FakeVocab, Style, str],
    sampling: SamplingParams,
    lookup: bool,
) -> None:
    """B5 and the boundary: parts, texts and tokens are those of the target alone."""
    vocab, style, prompt = setting
    wish = Wish(think, budget)
    kind = {"sampling": sampling, "max_tokens": 60, "stops": ["ba\n"]}
    plain = thinks(Rig(babble(vocab, seed)), style, prompt, wish, **kind)
    pair = Rig(babble(vocab, seed), babble(vocab, seed, agree))
    drafted = thinks(pair, style, prompt, wish, n_draft=n_draft, lookup=lookup, **kind)
    assert (drafted.tokens, told(drafted), drafted.finish_reason) == (plain.tokens, told(plain), plain.finish_reason)
    assert [e.part for e in drafted.events] == [e.part for e in plain.events]


def test_drafts_are_accepted_across_the_boundary(rig: MakeRig) -> None:
    model = says(PAIR, "q:", "<think>" + "x" * 40)
    got = thinks(rig(model, model), STYLE, "q:", Wish(budget=10), n_draft=8, max_tokens=30)
    assert got.stats.acceptance_rate == 1.0, "the closing is foreseen by the draft too"


@pytest.mark.parametrize(
    ("accept", "sampling", "think"),
    [("match", GREEDY, "on"), ("match", SAMPLED, "auto"), ("rejection", SAMPLED, "on"), ("rejection", SAMPLED, "auto")],
)
def test_a_form_binds_the_answer_alone(
    tiny_models: dict[str, NativeModel], rig: MakeRig, accept: str, sampling: SamplingParams, think: str
) -> None:
    """A real grammar over a real vocabulary: the answer is of the form, with a draft as without."""
    form = form_of(
        Request(
            prompt="x",
            schema={
                "type": "object",
                "additionalProperties": False,
                "properties": {"a": {"enum": [1, 2]}},
                "required": ["a"],
            },
        )
    )
    assert form is not None
    model = tiny_models["q8"]
    ids = model.vocab.tokenize("the answer")

    def reply(n_draft: int) -> Reply:
        made = rig(model, tiny_models["q4"] if n_draft else None)
        parts = parts_of(STYLE, model.vocab, ids, Wish(think, 6))
        parts.bind()
        job = made.job(ids, n_draft=n_draft, sampling=sampling, max_tokens=60, accept=accept)
        n_vocab = made.target.context.n_vocab
        job.parts = parts
        job.sampler = ThoughtSampler(
            sampling,
            n_vocab,
            parts=parts,
            constraint=Constraints().constraint(form, model.vocab),
            eog_tokens=model.vocab.eog_tokens,
        )
        return collect(stream(job))

    plain, drafted = reply(0), reply(4)
    for got in (plain, drafted):
        if got.finish_reason == "stop":
            assert json.loads(got.text)["a"] in (1, 2)
        thought = "".join(event.thought for event in got.events)
        assert bool(thought) == (think == "on")
    if accept == "match":
        assert drafted.tokens == plain.tokens
    assert "stop" in (plain.finish_reason, drafted.finish_reason)


def test_the_sampler_may_draft_by_itself() -> None:
    """What a drafter asks of a fork leaves no trace."""
    ids = PAIR.tokenize("q:")
    sampler = ThoughtSampler(GREEDY, PAIR.n_tokens, parts=parts_of(STYLE, PAIR, ids, Wish(budget=1)))
    fork = sampler.fork()
    think = PAIR.tokenize("<think>", parse_special=True)[0]
    for token in (think, 97):
        fork.accept(token)
    assert fork.choose(one_hot(98), 2) == 10 and not fork.plain_greedy
    assert sampler.choose(one_hot(98), 0) == 98 and sampler.plain_greedy


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        ("qwen3", Style(gap="\n\n", switch="enable_thinking")),
        ("smollm3", Style(gap="\n", switch="enable_thinking")),
        ("deepseek-r1", Style()),
        ("harmony", Style(is_harmony=True, has_effort=True)),
        ("chatml", None),
        ("llama3", None),
        ("gemma3", None),
        ("mistral", None),
        ("lfm2", None),
    ],
)
def test_the_style_is_read_from_template_and_vocabulary(maker: str, expected: Style | None) -> None:
    source = MAKERS[maker].source
    vocab = FakeVocab(tags=(*MAKERS[maker].control, *MAKERS[maker].tags))
    assert read_style(source if isinstance(source, str) else source["default"], vocab) == expected


def test_a_wish_becomes_variables_or_a_notice() -> None:
    switch, effort = Style(switch="enable_thinking"), Style(is_harmony=True, has_effort=True)
    assert resolve(Wish("off"), switch, {})[0] == {"enable_thinking": False}
    assert resolve(Wish(), switch, {})[0] == {}
    assert resolve(Wish("on"), switch, {"enable_thinking": False})[1].think == "off", "what the caller set wins"
    assert resolve(Wish(effort="none"), switch, {})[0] == {"enable_thinking": False}
    assert resolve(Wish(effort="high"), effort, {})[0] == {"reasoning_effort": "high"}
    assert resolve(Wish("off"), effort, {})[0] == {"reasoning_effort": "low"}
    assert "levels" in resolve(Wish(effort="high"), switch, {})[2][0]
    for wish in (Wish("on"), Wish(budget=5), Wish(effort="low")):
        assert "does not think" in resolve(wish, None, {})[2][0]
    for wish in (Wish(), Wish("off"), Wish(effort="none")):
        assert resolve(wish, None, {})[2] == []


def test_a_drafts_own_cache_knows_the_vocabulary_of_tags(rig: MakeRig) -> None:
    made = rig(babble(PAIR, 3), babble(PAIR, 3))
    assert made.draft is not None
    assert ModelDrafter("q4", made.draft, n_vocab=PAIR.n_tokens, target=made.target).name == "q4"
