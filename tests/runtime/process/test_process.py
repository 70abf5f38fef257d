"""The child process answers exactly as the engine in this process does, and obeys as fast."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from runtime_rig import GREEDY, drained

from edge_specquant.errors import FamilyError, UsageError
from edge_specquant.gguf.family.family import Family
from edge_specquant.params import SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime import Conversation, EngineOptions, Runtime

OPTIONS = EngineOptions(calibrate=False, n_ctx=512, n_batch=64, n_threads=1)
LONG = "a long prompt that takes the engine a while to read, chunk by chunk " * 6


@pytest.fixture(scope="module")
def local(tiny_family: Family) -> Iterator[Runtime]:
    with Runtime.local(tiny_family.folder, OPTIONS) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def process(tiny_family: Family) -> Iterator[Runtime]:
    with Runtime.process(tiny_family.folder, OPTIONS) as runtime:
        yield runtime


@pytest.mark.parametrize("draft", ["none", "lookup", "q4"])
def test_the_same_events_from_both(local: Runtime, process: Runtime, draft: str) -> None:
    request = Request(prompt="Hi", max_tokens=30, sampling=GREEDY, speculation=SpeculationParams(draft, 3))
    ours, theirs = list(local.generate(request)), list(process.generate(request))
    assert ours[:-1] == theirs[:-1]
    assert ours[-1].finish_reason == theirs[-1].finish_reason
    assert theirs[-1].stats is not None and theirs[-1].stats.n_generated == len(theirs) - 1
    assert local.tokens(request) == process.tokens(request)
    assert local.siblings(request) == process.siblings(request)


def test_turns_reuse_what_was_said(local: Runtime, process: Runtime) -> None:
    """Case D7, with speculation, on the real engine."""
    conversation = Conversation("Be brief.")
    n_before = 0
    for turn in range(3):
        _, ids, end = drained(process.chat(conversation, f"Question {turn}?", sampling=GREEDY, max_tokens=16))
        assert end.stats is not None
        if turn:
            assert end.stats.n_cached == n_before - 1  # all but the last token of the reply, which was never decoded
        n_before = end.stats.n_prompt + len(ids)
        fresh = Request(messages=conversation.as_messages()[:-1], system="Be brief.", sampling=GREEDY, max_tokens=16)
        assert drained(local.generate(fresh))[1] == list(conversation.messages[-1].token_ids)


def test_progress_of_the_prompt_is_reported(process: Runtime) -> None:
    seen: list[tuple[int, int]] = []
    drained(process.generate(Request(prompt=LONG, max_tokens=1), lambda done, total: seen.append((done, total))))
    assert len(seen) > 1 and seen[-1][0] == seen[-1][1]


def test_cancel_reaches_into_a_long_prompt_and_the_prefix_is_kept(process: Runtime) -> None:
    request = Request(prompt="Now " + LONG, max_tokens=8, sampling=GREEDY)
    reply = process.generate(request, lambda *_: reply.cancel())
    assert drained(reply)[2].finish_reason in ("cancelled", "length")  # length: it was faster than the message
    again = drained(process.generate(request))[2]
    assert again.stats is not None and again.stats.n_cached > 0 and again.finish_reason == "length"


def test_cancel_of_what_waits_and_of_all(process: Runtime) -> None:
    running = process.generate(Request(prompt="one", sampling=GREEDY))
    next(running)
    waiting = process.generate(Request(prompt="two", sampling=GREEDY))
    ends: list[str | None] = []
    thread = threading.Thread(target=lambda: ends.append(drained(waiting)[2].finish_reason))
    thread.start()
    while process.status().n_waiting < 1:
        pass
    waiting.cancel()
    process.cancel()
    assert drained(running)[2].finish_reason == "cancelled"
    thread.join()
    assert ends == ["cancelled"]


def test_a_closed_reply_stops_the_engine(process: Runtime) -> None:
    reply = process.generate(Request(prompt="one", sampling=GREEDY))
    next(reply)
    reply.close()
    assert drained(process.generate(Request(prompt="two", max_tokens=2)))[2].finish_reason == "length"


def test_errors_keep_their_class_and_words(process: Runtime) -> None:
    with pytest.raises(UsageError, match="the context holds 512"):
        next(process.generate(Request(prompt=LONG * 20)))
    with pytest.raises(FamilyError, match="has no 'q9'"):
        next(process.generate(Request(prompt="x", target="q9")))


def test_status_tells_what_is_in_memory(process: Runtime) -> None:
    drained(process.generate(Request(prompt="x", target="f16", max_tokens=2)))
    status = process.status()
    assert status.mode == "process" and not status.busy and status.n_waiting == 0
    assert {resident.name for resident in status.residents} >= {"f16", "q4"}
    assert status.n_bytes > 0 and all(resident.load_s > 0 for resident in status.residents)
    assert "Hi" not in repr(status)
