"""The laws of the loop on scripted logits: with any draft the reply is the target's own, token for token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from engine_rig import GREEDY, Rig, collect
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.engine.drafters.draft import Draft, GoOn
from edge_specquant.engine.drafters.lookup import LookupDrafter
from edge_specquant.engine.sampling import TokenSampler
from edge_specquant.engine.signals import Offer, Signals
from edge_specquant.engine.stream import stream
from edge_specquant.errors import UsageError
from edge_specquant.native.fake import N_BYTES, FakeModel, hashed, one_hot, scripted
from edge_specquant.params import SamplingParams

PROMPT = list(b"Once upon a time")
EOS = N_BYTES
MakeRig = Callable[..., Rig]


def pair(agree: float, seed: int = 1) -> tuple[FakeModel, FakeModel]:
    """A target and a draft that agrees with it about that often."""
    return FakeModel(hashed(seed)), FakeModel(hashed(seed, agree=agree))


def says(text: bytes, then: int = EOS) -> FakeModel:
    return FakeModel(scripted([*text, then], len(PROMPT)))


class RandomDrafter:
    """Proposes what a script of integers says: right, wrong, short, nothing."""

    name = "q4"
    decode_s = 0.0

    def __init__(self, answer: bytes, script: list[int]) -> None:
        self._answer, self._script, self.n_accepted = [*answer, EOS], script, 0

    def begin(self, history: list[int]) -> None:
        pass

    def offer(self, history: list[int]) -> Offer:
        return Offer(self.name, 7)

    def propose(self, history: list[int], limit: int, go_on: GoOn, sampler: TokenSampler) -> Draft:
        done = len(history) - len(PROMPT)
        choice = self._script.pop() if self._script else 0
        tokens = self._answer[done : done + min(limit, choice % 7)]
        if tokens and choice % 3 == 0:
            tokens[choice % len(tokens)] = 33
        signals = tuple(Signals(i, "q4") for i in range(len(tokens)))
        return Draft(tuple(tokens), ("q4",) * len(tokens), signals)

    def accepted(self, n: int) -> None:
        self.n_accepted += n

    def close(self) -> None:
        pass


@settings(deadline=None, max_examples=100)
@given(
    st.binary(max_size=40),
    st.lists(st.integers(0, 100), max_size=60),
    st.integers(0, 50),
    st.lists(st.sampled_from(["a", "ab", "\n", "zz"]), max_size=2),
    st.integers(0, 16),
)
def test_any_interleaving_of_drafts_gives_the_plain_reply(
    answer: bytes, script: list[int], max_tokens: int, stops: list[str], n_draft: int
) -> None:
    answer = bytes(b"ab\nz"[b % 4] for b in answer)
    plain = Rig(says(answer)).reply(PROMPT, max_tokens=max_tokens, stops=stops)
    drafted = Rig(says(answer)).reply(
        PROMPT, max_tokens=max_tokens, stops=stops, n_draft=n_draft, drafter=RandomDrafter(answer, script)
    )
    assert (drafted.text, drafted.tokens, drafted.finish_reason) == (plain.text, plain.tokens, plain.finish_reason)
    assert drafted.stats.n_generated == len(plain.tokens) <= max_tokens


@pytest.mark.parametrize("n_draft", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("agree", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=5, temperature=1.2)], ids=["greedy", "sampled"])
def test_a_draft_model_changes_nothing(rig: MakeRig, n_draft: int, agree: float, sampling: SamplingParams) -> None:
    target, draft = pair(agree)
    plain = rig(target).reply(PROMPT, max_tokens=120, sampling=sampling)
    drafted = rig(target, draft).reply(PROMPT, max_tokens=120, sampling=sampling, n_draft=n_draft)
    assert drafted.tokens == plain.tokens


def test_target_as_its_own_draft_accepts_everything(rig: MakeRig) -> None:
    target, draft = pair(1.0)
    reply = rig(target, draft).reply(PROMPT, max_tokens=101, n_draft=4)
    assert reply.stats.acceptance_rate == 1.0
    assert reply.stats.mean_accepted_length == 5.0
    assert set(reply.stats.accepted_by_position) == {1.0}


@pytest.mark.parametrize("agree", [0.6, 1.0])
def test_the_draft_decodes_each_accepted_token_once(rig: MakeRig, agree: float) -> None:
    target, draft = pair(agree)
    made = rig(target, draft)
    reply = made.reply(PROMPT, max_tokens=80, n_draft=4)
    decoded = len(draft.contexts[0].decoded)
    rejected_and_decoded = reply.stats.n_drafted - reply.stats.n_accepted
    assert decoded <= len(PROMPT) + len(reply.tokens) + rejected_and_decoded


@pytest.mark.parametrize("at", range(9))
def test_an_end_accepted_in_mid_block_ends_the_reply(rig: MakeRig, at: int) -> None:
    """Case A1: T1 + T2 with a block of 8."""
    text = b"abcdefghij"
    model = says(text[:at])
    reply = rig(model, model).reply(PROMPT, max_tokens=30, n_draft=8)
    assert (reply.text, reply.finish_reason) == (text[:at].decode(), "stop")
    assert EOS not in reply.tokens


@pytest.mark.parametrize(
    ("max_tokens", "stop", "text", "why"),
    [(5, "cd", "ab", "stop"), (5, "gh", "abcde", "length"), (4, "e", "abcd", "length"), (5, "e", "abcd", "stop"),
     (8, "h", "abcdefg", "stop"), (0, "a", "", "length"), (1, "a", "", "stop")],
)  # fmt: skip
def test_stops_and_budgets_in_one_burst(rig: MakeRig, max_tokens: int, stop: str, text: str, why: str) -> None:
    """Case A2: the earlier of stop and budget wins; never more than max_tokens."""
    model = says(b"abcdefghij")
    for n_draft in (0, 8):
        reply = rig(model, model).reply(PROMPT, max_tokens=max_tokens, stops=[stop], n_draft=n_draft)
        assert (reply.text, reply.finish_reason) == (text, why)
        assert len(reply.tokens) <= max_tokens
        assert reply.stats.n_generated == len(reply.tokens)


def test_after_a_stop_everything_agrees_with_the_plain_run(rig: MakeRig) -> None:
    """Case A3: text, ids, usage and origins count the same tokens."""
    model = says(b"one two STOP three four")
    plain = rig(model).reply(PROMPT, stops=["STOP"])
    burst = rig(model, model).reply(PROMPT, stops=["STOP"], n_draft=16)
    assert (burst.text, burst.tokens, burst.stats.n_generated) == (plain.text, plain.tokens, plain.stats.n_generated)
    assert sum(burst.stats.origins.values()) == len(plain.tokens)


@pytest.mark.parametrize("n_draft", [1, 2, 8, 48])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0, repeat_penalty=1.4),
        SamplingParams(temperature=0, presence_penalty=1.5, frequency_penalty=0.3, penalty_last_n=-1),
        SamplingParams(temperature=0, logit_bias={ord("e"): 9.0, ord("t"): -5.0}),
        SamplingParams(temperature=0.9, seed=3, repeat_penalty=1.2),
    ],
    ids=["repeat", "presence", "bias", "sampled"],
)
def test_rejected_tokens_leave_no_trace(rig: MakeRig, n_draft: int, sampling: SamplingParams) -> None:
    """Case A4."""
    target, draft = pair(0.6)
    plain = rig(target).reply(PROMPT, max_tokens=90, sampling=sampling, min_tokens=20)
    drafted = rig(target, draft).reply(PROMPT, max_tokens=90, sampling=sampling, min_tokens=20, n_draft=n_draft)
    assert drafted.tokens == plain.tokens


@pytest.mark.parametrize("n_prompt", [40, 47, 48, 55, 62, 63, 64])
@pytest.mark.parametrize("with_draft", [False, True])
def test_the_reply_ends_at_exactly_the_context(rig: MakeRig, n_prompt: int, with_draft: bool) -> None:
    """Case A8: the draft shrinks; prompt and reply fill n_ctx and no more."""
    target, draft = pair(1.0)
    made = rig(target, draft, n_ctx=64)
    reply = made.reply([65] * n_prompt, n_draft=16 if with_draft else 0)
    assert reply.finish_reason == "length"
    assert n_prompt + len(reply.tokens) == 64


def test_a_prompt_longer_than_the_context_is_a_sentence(rig: MakeRig) -> None:
    target, _ = pair(1.0)
    with pytest.raises(UsageError, match="65 tokens and the context holds 64"):
        rig(target, n_ctx=64).reply([65] * 65)
    with pytest.raises(UsageError, match="empty"):
        rig(target).reply([])


@pytest.mark.parametrize("n_prompt", [1, 31, 32, 33, 64, 65])
def test_prefill_in_chunks(rig: MakeRig, n_prompt: int) -> None:
    """Case A10: n_batch 32."""
    target, draft = pair(0.8)
    prompt = [65 + i % 20 for i in range(n_prompt)]
    whole = rig(target, n_batch=256).reply(prompt, max_tokens=20)
    chunked = rig(target, draft, n_batch=32).reply(prompt, max_tokens=20, n_draft=3)
    assert chunked.tokens == whole.tokens
    assert max(target.contexts[-1].widths) <= 32


@pytest.mark.parametrize("call", [1, 2, 5])
def test_a_refused_truncation_is_survived(rig: MakeRig, call: int) -> None:
    """Case A12: the refusal is noticed, the cache rebuilt, speculation off, the reply unharmed."""
    target, draft = pair(0.5)
    plain = rig(target).reply(PROMPT, max_tokens=60)
    made = rig(target, draft)
    made.target.context.refuse_truncation_at = call  # type: ignore[attr-defined]
    reply = made.reply(PROMPT, max_tokens=60, n_draft=4)
    assert reply.tokens == plain.tokens
    assert made.target.n_refused == 1


@pytest.mark.parametrize("after", range(1, 12))
def test_a_closed_iterator_leaves_the_caches_consistent(rig: MakeRig, after: int) -> None:
    target, draft = pair(0.8)
    made = rig(target, draft)
    events = stream(made.job(PROMPT, n_draft=4, max_tokens=50))
    for _ in range(after):
        next(events)
    events.close()
    for cache in (made.target, made.draft):
        assert cache is not None
        assert cache.tokens == cache.context.cells.get(0, [])  # type: ignore[attr-defined]
    again = made.reply(PROMPT, n_draft=4, max_tokens=50)
    assert again.tokens == rig(target).reply(PROMPT, max_tokens=50).tokens
    assert again.stats.n_cached >= len(PROMPT) - 1


def test_a_cancelled_reply_ends_and_the_prefix_stays(rig: MakeRig) -> None:
    target, draft = pair(0.8)
    made = rig(target, draft)
    events = stream(made.job(PROMPT, n_draft=4, max_tokens=50))
    seen = [next(events) for _ in range(5)]
    made.target.context.abort()
    rest = list(events)
    assert rest[-1].finish_reason == "cancelled" and len(seen) + len(rest) <= 11
    made.target.context.resume()
    assert made.reply(PROMPT, max_tokens=50).tokens == rig(target).reply(PROMPT, max_tokens=50).tokens


def test_lookup_copies_what_repeats(rig: MakeRig) -> None:
    answer = b"the cat sat on the mat and the cat sat on the mat and the cat sat"
    reply = rig(says(answer)).reply(PROMPT, drafter=LookupDrafter(), n_draft=6)
    assert reply.text.encode() == answer
    assert reply.stats.origins["lookup"] > len(answer) // 3
    assert reply.stats.n_rounds < len(answer) // 1.5


def test_origins_name_who_wrote_each_token(rig: MakeRig) -> None:
    target, draft = pair(0.7)
    reply = rig(target, draft).reply(PROMPT, max_tokens=60, n_draft=3)
    assert reply.origins[0] == "target"
    assert reply.origins.count("q4") == reply.stats.n_accepted == reply.stats.origins["q4"]


def test_nothing_drafted_is_unknown_not_zero(rig: MakeRig) -> None:
    stats = rig(says(b"abc")).reply(PROMPT).stats
    assert stats.acceptance_rate is None and stats.mean_accepted_length is None
    assert stats.accepted_by_position == ()


def test_a_draft_with_a_smaller_vocabulary_is_padded_not_obeyed(rig: MakeRig) -> None:
    """Case A15: no id outside the target's vocabulary is ever proposed."""
    target = FakeModel(lambda h: one_hot(98, N_BYTES + 4))
    wide = FakeModel(lambda h: one_hot(N_BYTES + 9, N_BYTES + 12))
    wide.vocab.n_tokens = N_BYTES + 12
    made = rig(target, wide)
    reply = made.reply(PROMPT, max_tokens=12, n_draft=3)
    assert set(reply.tokens) == {98}
    assert max(target.contexts[0].decoded) < N_BYTES + 4


def test_events_carry_whole_characters(rig: MakeRig) -> None:
    """Case B1: a burst boundary inside a ZWJ family."""
    answer = "a👩\u200d👩\u200d👧漢z".encode()
    for n_draft in (0, 1, 2, 5):
        model = says(answer)
        reply = rig(model, model).reply(PROMPT, n_draft=n_draft)
        assert reply.text == answer.decode()
        assert all("\ufffd" not in event.text for event in reply.events)


def test_sampled_replies_repeat_by_seed_and_vary_without() -> None:
    """Case B5, in one process."""
    target, draft = pair(0.8)
    seeded = SamplingParams(temperature=1.5, seed=11, top_k=0, top_p=1, min_p=0)
    replies = {Rig(target, draft).reply(PROMPT, max_tokens=40, sampling=seeded, n_draft=n).tokens for n in (0, 3, 3, 9)}
    assert len(replies) == 1
    free = SamplingParams(temperature=1.5, top_k=0, top_p=1, min_p=0)
    assert len({Rig(target).reply(PROMPT, max_tokens=40, sampling=free).tokens for _ in range(4)}) == 4


def test_rejection_gives_the_targets_distribution_end_to_end() -> None:
    """Case A5: 2-token replies over seeds, with and without draft, against the exact distribution."""
    from engine_rig import chi_square_ok

    def flat(h: tuple[int, ...]) -> np.ndarray:
        row = np.full(N_BYTES + 4, -40.0, dtype=np.float32)
        row[97:101] = [1.0, 0.4, 0.0, -0.5] if h[-1] % 2 else [0.0, 0.9, 0.2, 0.1]
        return row

    def other(h: tuple[int, ...]) -> np.ndarray:
        row = np.full(N_BYTES + 4, -40.0, dtype=np.float32)
        row[97:101] = [0.2, 0.1, 1.2, -0.5]
        return row

    target, draft = FakeModel(flat), FakeModel(other)
    p1 = np.exp(flat((*PROMPT,))[97:101])
    p1 /= p1.sum()
    joint = np.zeros((4, 4))
    for i in range(4):
        p2 = np.exp(flat((97 + i,))[97:101])
        joint[i] = p1[i] * p2 / p2.sum()
    for accept in ("match", "rejection"):
        counts = np.zeros((4, 4))
        made = Rig(target, draft)
        for seed in range(2000):
            sampling = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed)
            reply = made.reply(PROMPT, max_tokens=3, sampling=sampling, n_draft=2, accept=accept)
            counts[reply.tokens[0] - 97, reply.tokens[1] - 97] += 1
        assert chi_square_ok(counts.ravel(), joint.ravel()), accept


def test_collect_sees_one_end(rig: MakeRig) -> None:
    reply = collect(stream(rig(says(b"hi")).job(PROMPT)))
    assert [e.finish_reason for e in reply.events] == [None, None, "stop"]


def test_a_short_prompt_is_not_read_twice(rig: MakeRig) -> None:
    """The draft takes the target's cells; of its own it decodes the last token, then one a step."""
    draft = FakeModel(hashed(1))
    made = rig(FakeModel(hashed(1)), draft)
    made.reply(list(b"Why is the sky blue?"), n_draft=3, max_tokens=20)
    assert set(draft.contexts[0].widths) <= {1, 2} and draft.contexts[0].widths[0] == 1
