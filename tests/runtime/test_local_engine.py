"""The engine in this process, on fakes: every answer equals its solo run, whatever happened before or beside it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_rig import GREEDY, FakeEngine, drained, fake_runtime, greedy_fake

from edge_specquant.errors import ModelLoadError, UsageError
from edge_specquant.request import Request
from edge_specquant.runtime import Conversation, EngineOptions, Runtime
from edge_specquant.runtime.local import LocalEngine

N = 12
STEPS = ("send", "edit", "regenerate", "branch", "back", "cancel", "close")
LONG = "a prompt that is longer than one batch of the engine " * 6


def expected(runtime: Runtime, conversation: Conversation, n: int = N) -> list[int]:
    """What a fresh run says to this conversation."""
    request = Request(messages=conversation.as_messages(), system=conversation.system)
    return greedy_fake(runtime.tokens(request), n)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 7)),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([0, 3000, 1 << 20]),
)
def test_any_sequence_of_turns_answers_as_a_fresh_run(steps: Sequence[tuple[str, int]], snapshot_bytes: int) -> None:
    options = EngineOptions(calibrate=False, n_ctx=4096, n_batch=64, snapshot_bytes=snapshot_bytes)
    runtime, _ = fake_runtime(options)
    branches = [Conversation("Be brief.")]
    with runtime:
        for step, number in steps:
            conversation = branches[-1]
            message: str | None = f"message {number} {LONG[: 17 * number]}"
            stop_after = number if step in ("cancel", "close") else None
            if step == "branch":
                branches.append(conversation.branch(number % (len(conversation.messages) + 1)))
                conversation = branches[-1]
            elif step == "back":
                branches.insert(0, branches.pop())
                conversation = branches[-1]
            elif step == "edit" and conversation.messages:
                conversation.edit(number % len(conversation.messages), f"other words {number}")
                if conversation.messages[-1].role == "user":
                    message = None
            elif step == "regenerate" and conversation.messages:
                message = None
            reply = runtime.chat(conversation, message, sampling=GREEDY, max_tokens=N)
            wanted = expected(runtime, conversation)
            ids = []
            for event in reply:
                ids += [event.token_id] if event.token_id is not None else []
                if stop_after is not None and len(ids) >= stop_after:
                    if step == "close":
                        reply.close()
                    else:
                        reply.cancel()
            assert ids == wanted[: len(ids)]
            if stop_after is None:
                assert ids == wanted


def test_the_next_turn_decodes_only_what_is_new() -> None:
    runtime, engine = fake_runtime()
    with runtime:
        conversation = Conversation()
        drained(runtime.chat(conversation, LONG, sampling=GREEDY, max_tokens=N))
        _, _, end = drained(runtime.chat(conversation, "And now?", sampling=GREEDY, max_tokens=N))
        assert end.stats is not None
        n_new = len("\n[user]And now?\n[assistant]")
        assert end.stats.n_cached == end.stats.n_prompt - n_new - 1  # the reply's last token was never decoded
        _, _, again = drained(runtime.chat(conversation, None, sampling=GREEDY, max_tokens=N))
        assert again.stats is not None and again.stats.n_cached == again.stats.n_prompt - 1
    assert not engine.status().busy


def test_a_strict_prefix_of_the_last_prompt_decodes_one_token() -> None:
    runtime, engine = fake_runtime()
    with runtime:
        ids = runtime.tokens(Request(prompt=LONG))
        drained(runtime.generate(Request(prompt_tokens=ids, sampling=GREEDY, max_tokens=3)))
        decoded = engine.models["f16"].contexts[0].decoded
        decoded.clear()
        _, got, end = drained(runtime.generate(Request(prompt_tokens=ids[:100], sampling=GREEDY, max_tokens=1)))
        assert end.stats is not None and end.stats.n_cached == 99
        assert decoded == ids[99:100]
        assert got == greedy_fake(ids[:100], 1)


def test_a_branch_left_behind_comes_back_without_prefill() -> None:
    runtime, engine = fake_runtime()
    with runtime:
        first, second = Conversation("A. " + LONG), Conversation("B. " + LONG)
        for conversation in (first, second):
            drained(runtime.chat(conversation, "Hello", sampling=GREEDY, max_tokens=N))
        wanted = expected(runtime, first.branch(1))
        _, ids, end = drained(runtime.chat(first, None, sampling=GREEDY, max_tokens=N))
        assert ids == wanted
        assert end.stats is not None and end.stats.n_cached == end.stats.n_prompt - 1
    assert engine.status().n_snapshots >= 1


@pytest.mark.parametrize("chunk", [1, 3])
def test_cancel_in_prefill_keeps_the_chunks_and_the_prefix(chunk: int) -> None:
    runtime, engine = fake_runtime(EngineOptions(calibrate=False, n_ctx=4096, n_batch=64))
    with runtime:
        drained(runtime.generate(Request(prompt="x", sampling=GREEDY, max_tokens=1)))  # loads
        request = Request(prompt=LONG, sampling=GREEDY, max_tokens=N)
        reply = runtime.generate(request, lambda done, _: reply.cancel() if done >= 64 * chunk else None)
        text, ids, end = drained(reply)
        assert (text, ids, end.finish_reason) == ("", [], "cancelled")
        (held,) = (resident.n_cached for resident in engine.status().residents if resident.name == "f16")
        assert held >= 64 * chunk
        prompt = runtime.tokens(request)
        _, ids, end = drained(runtime.generate(request))
        assert end.stats is not None and end.stats.n_cached == held
        assert ids == greedy_fake(prompt, N)


def test_four_threads_and_cancelled_rounds_answer_as_alone() -> None:
    """Case D2."""
    runtime, _ = fake_runtime()
    with runtime:
        wanted = {name: greedy_fake(runtime.tokens(Request(prompt=name * 40)), N) for name in "abcd"}
        wrong: list[str] = []

        def ask(name: str) -> None:
            for i in range(20):
                request = Request(prompt=name * 40, sampling=GREEDY, max_tokens=N)
                reply = runtime.generate(request)
                if i % 2:
                    next(reply)
                    reply.cancel()
                    drained(reply)
                else:
                    _, ids, end = drained(reply)
                    if ids != wanted[name] or end.finish_reason != "length":
                        wrong.append(name)

        threads = [threading.Thread(target=ask, args=(name,)) for name in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_runtime_cancel_ends_those_that_wait_too() -> None:
    runtime, engine = fake_runtime()
    with runtime:
        running = runtime.generate(Request(prompt="one", sampling=GREEDY))
        next(running)
        ends: list[str | None] = []
        two, three = (Request(prompt=name, sampling=GREEDY, max_tokens=9) for name in ("two", "three"))
        waiting = threading.Thread(target=lambda: ends.append(drained(runtime.generate(two))[2].finish_reason))
        waiting.start()
        while engine.status().n_waiting < 1:
            pass
        runtime.cancel()
        waiting.join()
        assert ends == ["cancelled"]
        assert drained(running)[2].finish_reason == "cancelled"
        assert drained(runtime.generate(three))[2].finish_reason == "length"


def test_cancel_while_a_model_loads_ends_the_reply() -> None:
    engine = FakeEngine()

    def slow_open(name: str, progress: object) -> object:
        reply.cancel()
        assert callable(progress) and progress(0.5) is False
        raise ModelLoadError(f"{name} was not loaded")

    engine._open_variant = slow_open  # type: ignore[assignment]
    reply = engine.generate(Request(prompt="x"))
    assert [event.finish_reason for event in reply] == ["cancelled"]


def test_a_second_reply_in_the_same_thread_says_what_is_wrong() -> None:
    runtime, _ = fake_runtime()
    with runtime:
        unfinished = runtime.generate("one")
        next(unfinished)
        with pytest.raises(UsageError, match="unfinished"):
            next(runtime.generate("two"))
        unfinished.close()
        assert drained(runtime.generate(Request(prompt="two", max_tokens=2)))[2].finish_reason == "length"


def test_what_was_read_of_a_closed_reply_is_kept() -> None:
    runtime, _ = fake_runtime()
    with runtime:
        conversation = Conversation()
        reply = runtime.chat(conversation, "Hello", sampling=GREEDY)
        shown = next(reply).text + next(reply).text
        reply.close()
        assert conversation.messages[-1].text == shown
        assert conversation.messages[-1].finish_reason == "cancelled"


def test_replies_asked_for_by_plain_messages_are_reused_too() -> None:
    runtime, _ = fake_runtime()
    with runtime:
        messages = [{"role": "user", "content": LONG}]
        text, _, _ = drained(runtime.generate(Request(messages=messages, sampling=GREEDY, max_tokens=N)))
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "More"}]
        _, _, end = drained(runtime.generate(Request(messages=messages, sampling=GREEDY, max_tokens=N)))
        assert end.stats is not None and end.stats.n_cached >= len(LONG) + N


def test_closing_twice_and_status_after_it() -> None:
    runtime, engine = fake_runtime()
    drained(runtime.generate(Request(prompt="x", max_tokens=1)))
    runtime.close()
    runtime.close()
    assert isinstance(engine, LocalEngine) and engine.status().residents == ()
