"""Turns, edits, regenerations, branches and cancels on the real engine: each reply is that of a fresh runtime.

Strict, because the conversation passes 512 cells, where the engine's attention differs between one token and several.
"""

from __future__ import annotations

import pytest
from runtime_rig import GREEDY, drained

from edge_specquant.gguf.family.family import Family
from edge_specquant.params import SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime import Conversation, EngineOptions, Runtime

LONG = "Here is a text that is longer than one batch of this engine, to be read in pieces. " * 3


@pytest.mark.parametrize("draft", ["lookup", "q4"])
def test_each_reply_is_that_of_a_fresh_runtime(tiny_family: Family, draft: str) -> None:
    options = EngineOptions(calibrate=False, n_ctx=1024, n_batch=64, n_threads=1, snapshot_bytes=1 << 20)
    speculation = SpeculationParams(draft, 3, strict=True)
    fields = {"target": "f16", "sampling": GREEDY, "max_tokens": 16, "speculation": speculation}
    main = Conversation("Be brief.")
    with Runtime.local(tiny_family.folder, options) as runtime:

        def check(conversation: Conversation, message: str | None) -> None:
            reply = runtime.chat(conversation, message, **fields)  # type: ignore[arg-type]
            asked = conversation.as_messages()
            prompt = runtime.tokens(Request(messages=asked, system=conversation.system))
            _, ids, _ = drained(reply)
            with Runtime.local(tiny_family.folder, options) as fresh:
                request = Request(prompt_tokens=prompt, **fields)  # type: ignore[arg-type]
                assert ids == drained(fresh.generate(request))[1]

        check(main, "Hello " + LONG)
        check(main, "And then?")
        branch = main.branch(2)
        check(branch, "No, tell me something else. " + LONG)
        check(main, None)
        stopped = runtime.chat(main, LONG, on_prefill=lambda *_: stopped.cancel(), **fields)  # type: ignore[misc,arg-type]
        assert drained(stopped)[2].finish_reason == "cancelled"
        check(main, None)
        check(branch, "Go on.")
        main.edit(0, "Good morning")
        check(main, None)


def test_a_long_conversation_reopens_from_disk(tiny_family: Family) -> None:
    options = EngineOptions(calibrate=False, n_ctx=1024, n_threads=1, snapshot_disk_bytes=1 << 26)
    conversation = Conversation("Be brief.")
    with Runtime.local(tiny_family.folder, options) as runtime:
        drained(runtime.chat(conversation, LONG, target="f16", sampling=GREEDY, max_tokens=16))
    copy = conversation.branch()
    with Runtime.local(tiny_family.folder, options) as runtime:
        _, ids, end = drained(runtime.chat(conversation, "More?", target="f16", sampling=GREEDY, max_tokens=16))
    assert end.stats is not None and end.stats.n_prompt - end.stats.n_cached < 40
    with Runtime.local(tiny_family.folder, EngineOptions(calibrate=False, n_ctx=1024, n_threads=1)) as fresh:
        assert drained(fresh.chat(copy, "More?", target="f16", sampling=GREEDY, max_tokens=16))[1] == ids


def test_cancel_and_send_again_twenty_times(tiny_family: Family) -> None:
    """Case D2."""
    request = Request(prompt=LONG, target="f16", sampling=GREEDY, max_tokens=20, min_tokens=20)
    with Runtime.process(
        tiny_family.folder, EngineOptions(calibrate=False, n_ctx=1024, n_batch=32, n_threads=1)
    ) as runtime:
        wanted = drained(runtime.generate(request))[1]
        for n in range(20):
            reply = runtime.generate(request)
            for _ in range(n % 4):
                next(reply)
            reply.cancel()
            drained(reply)
            assert drained(runtime.generate(request))[1] == wanted
