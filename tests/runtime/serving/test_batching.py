"""Replies written at the same time, in mixed batches: each answers as it would alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from runtime_rig import GREEDY, FakeEngine, drained, fake_runtime, greedy_fake

from edge_specquant.engine.caches.certificate import Certificate
from edge_specquant.gguf.family.family import Family
from edge_specquant.native.library.library import engine
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import Chunk, ContextParams
from edge_specquant.params import SamplingParams, SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.models.measurements import Measured

PROMPTS = ["a" * 30, "b" * 200, "c", "d" * 90, "e" * 400, "f" * 33]


def together(asks: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=ask) for ask in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def slow_down(engine: FakeEngine) -> None:
    """Makes the fakes' decodes long enough for others to come."""
    for model in engine.models.values():
        for context in model.contexts:
            context.before_decode = lambda: time.sleep(0.001)


@pytest.mark.parametrize("draft", ["none", "lookup", "q4"])
def test_each_answer_equals_its_solo_run(draft: str) -> None:
    runtime, engine = fake_runtime(EngineOptions(calibrate=False, n_ctx=1024, n_batch=256, n_parallel=3))
    with runtime:
        drained(
            runtime.generate(
                Request(prompt="x", max_tokens=2, sampling=GREEDY, speculation=SpeculationParams(draft, 3))
            )
        )
        slow_down(engine)
        got: dict[str, list[int]] = {}

        def ask(prompt: str) -> None:
            speculation = SpeculationParams(draft, 3)
            request = Request(prompt=prompt, sampling=GREEDY, max_tokens=40, speculation=speculation)
            got[prompt] = drained(runtime.generate(request))[1]

        together([lambda prompt=prompt: ask(prompt) for prompt in PROMPTS])  # type: ignore[misc]
        for prompt in PROMPTS:
            assert got[prompt] == greedy_fake(runtime.tokens(Request(prompt=prompt)), 40)
        shared = engine._slots._shared
        assert shared is not None and shared.mixers()[0].n_mixed > 0


def test_a_cancelled_reply_leaves_the_others_alone() -> None:
    runtime, engine = fake_runtime(EngineOptions(calibrate=False, n_ctx=1024, n_batch=128, n_parallel=2))
    with runtime:
        drained(runtime.generate(Request(prompt="x", max_tokens=2)))
        slow_down(engine)
        wanted = greedy_fake(runtime.tokens(Request(prompt="stays")), 300)
        got: list[list[int]] = []

        def stay() -> None:
            got.append(drained(runtime.generate(Request(prompt="stays", sampling=GREEDY, max_tokens=300)))[1])

        def come_and_go() -> None:
            for n in range(12):
                reply = runtime.generate(Request(prompt="g" * 60 * n + "!", sampling=GREEDY, max_tokens=50))
                if n % 3:
                    next(reply)
                threading.Timer(0.002, reply.cancel).start()
                assert drained(reply)[2].finish_reason in ("cancelled", "length")

        together([stay, come_and_go])
        assert got == [wanted]


def test_a_conversation_finds_its_own_slot_again() -> None:
    runtime, _ = fake_runtime(EngineOptions(calibrate=False, n_ctx=1024, n_parallel=2))
    with runtime:
        requests = [Request(prompt=letter * 300, sampling=GREEDY, max_tokens=5) for letter in "ab"]
        replies = [runtime.generate(request) for request in requests]

        def in_turns() -> None:
            for reply in replies:
                next(reply)
            for reply in replies:
                drained(reply)

        together([in_turns])
        for request in reversed(requests):
            end = drained(runtime.generate(request))[2]
            assert end.stats is not None and end.stats.n_cached == end.stats.n_prompt - 1


def test_errors_stay_with_their_reply() -> None:
    runtime, _ = fake_runtime(EngineOptions(calibrate=False, n_ctx=300, n_parallel=2))
    with runtime:
        ends: list[object] = []

        def full() -> None:
            ends.append(drained(runtime.generate(Request(prompt="f" * 200, sampling=GREEDY)))[2].finish_reason)

        together([full, full])
        assert ends == ["length", "length"]


@pytest.mark.parametrize("kind", ["local", "process"])
def test_the_real_engine_answers_as_alone(tiny_family: Family, kind: str) -> None:
    # Prompts whose greedy replies have no near-tie (top two logits at least 0.05 apart), where width decides.
    requests = [
        Request(
            prompt=f"{letter} prompt {letter * 9}",
            target="f16",
            sampling=GREEDY,
            max_tokens=40,
            speculation=SpeculationParams("q4", 3),
        )
        for letter in "bteuvx"
    ]
    with Runtime.local(tiny_family.folder, EngineOptions(calibrate=False, n_ctx=256, n_threads=1)) as solo:
        wanted = [drained(solo.generate(request))[1] for request in requests]
    options = EngineOptions(calibrate=False, n_ctx=256, n_threads=1, n_parallel=3)
    with getattr(Runtime, kind)(tiny_family.folder, options) as runtime:
        got: dict[int, list[int]] = {}

        def ask(i: int) -> None:
            for _ in range(2):
                got[i] = drained(runtime.generate(requests[i]))[1]

        together([lambda i=i: ask(i) for i in range(len(requests))])  # type: ignore[misc]
        assert [got[i] for i in range(len(requests))] == wanted
        assert {resident.name for resident in runtime.status().residents} == {"f16", "q4"}


@pytest.mark.parametrize("target", ["f16", "q4"])
def test_strict_replies_in_company_are_bit_for_bit_those_of_a_lone_run(tiny_family: Family, target: str) -> None:
    """A random model is full of near-ties: whatever a neighbour changes in a row would show in these texts."""
    strict = [
        Request(
            prompt=f"{letter} prompt {letter * 9}",
            target=target,
            sampling=GREEDY if i % 2 else SamplingParams(temperature=1.0, seed=i),
            max_tokens=60,
            speculation=SpeculationParams("q4" if i % 3 else "none", 3, strict=True),
        )
        for i, letter in enumerate("abcdef")
    ]
    company = [Request(prompt=letter * 80, target=target, max_tokens=60) for letter in "uvwx"]
    options = EngineOptions(calibrate=False, n_ctx=256, n_threads=1)
    with Runtime.local(tiny_family.folder, options) as solo:
        wanted = [_tokens_and_logprobs(solo, request) for request in strict]
    with Runtime.local(tiny_family.folder, replace(options, n_parallel=3)) as runtime:
        got: dict[int, object] = {}

        def ask(i: int) -> None:
            got[i] = _tokens_and_logprobs(runtime, strict[i])

        def accompany(request: Request) -> None:
            drained(runtime.generate(request))

        asks: list[Callable[[], None]] = [partial(ask, i) for i in range(len(strict))]
        together([*asks, *(partial(accompany, request) for request in company)])
        assert [got[i] for i in range(len(strict))] == wanted


def test_without_widths_that_agree_a_strict_reply_does_not_know_what_came_before(
    tiny_family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Measured, "certificate", lambda *_: Certificate(1, None, 0.0, ()))
    speculation = SpeculationParams("q4", 3, strict=True)
    requests = [
        Request(prompt=f"one long beginning, then {letter}", target="q4", max_tokens=30, speculation=speculation)
        for letter in "abc"
    ]
    requests = [replace(request, sampling=GREEDY) for request in requests]
    with Runtime.local(tiny_family.folder, EngineOptions(calibrate=False, n_ctx=256, n_threads=1)) as runtime:
        first = [_tokens_and_logprobs(runtime, request) for request in requests]
        assert "nobody drafts" in " ".join(runtime.notices)
        for i in (2, 2, 0, 1, 1):
            assert _tokens_and_logprobs(runtime, requests[i]) == first[i]


def test_where_cells_cannot_be_given_up_no_widths_are_compared(
    tiny_family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing would fill the cache again and again for an answer that is known."""
    monkeypatch.setattr(engine(), "llama_model_is_recurrent", lambda _: True)
    monkeypatch.setattr(Measured, "certificate", lambda *_: pytest.fail("widths were compared"))
    request = Request(prompt="once", target="q4", max_tokens=6, speculation=SpeculationParams("q4", 3, strict=True))
    with Runtime.local(tiny_family.folder, EngineOptions(calibrate=False, n_ctx=256, n_threads=1)) as runtime:
        assert _tokens_and_logprobs(runtime, request)
        assert "nobody drafts" in " ".join(runtime.notices)


def _tokens_and_logprobs(runtime: Runtime, request: Request) -> list[tuple[int, float]]:
    events = list(runtime.generate(replace(request, logprobs=1)))
    return [(event.token_id, event.logprobs.logprob) for event in events if event.token_id and event.logprobs]


@pytest.mark.parametrize("variant", ["f16", "q4"])
def test_rows_do_not_depend_on_the_company(tiny_family: Family, variant: str) -> None:
    """To the last bit: what differs from a solo run is the width of the batch, never what the others say."""
    n, others = 24, 3
    ids = np.random.default_rng(0).integers(3, 250, (others + 3, n)).tolist()
    with NativeModel(tiny_family.path(variant), use_extra_bufts=True) as model:
        seen = []
        for company in ((1, 2, 3), (3, 4, 5)):
            with model.context(ContextParams(n_ctx=512, n_seq=4, max_rows=8, n_threads=1)) as context:
                rows = []
                for i in range(n):
                    chunks = [Chunk([ids[who][i]], i, 1, seq) for seq, who in enumerate((0, *company))]
                    rows.append(context.decode_mixed(chunks)[0].copy())
                seen.append(np.concatenate(rows))
        assert np.array_equal(seen[0], seen[1])
