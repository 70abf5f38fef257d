"""A chat whose engine is killed twice in mid-answer ends with the whole conversation in the store."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from runtime_rig import GREEDY

from edge_specquant.gguf.family.family import Family
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.store import Store

N = 300  # enough to be killed in the middle


@pytest.mark.skipif(sys.platform == "win32", reason="the engine is killed by a signal")
def test_killed_twice_and_nothing_is_lost(tiny_family: Family, tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "store.db"
    with (
        Runtime.process(tiny_family.folder, EngineOptions(calibrate=False, n_ctx=4096)) as runtime,
        Store.open(path) as store,
    ):
        chat = store.create("a chat with accidents")
        for turn in range(4):
            store.add(chat.id, "user", f"question {turn}")
            messages = [{"role": m.role, "content": m.text} for m in store.messages(chat.id)]
            request = Request(messages=messages, max_tokens=N, min_tokens=N, sampling=GREEDY)
            shown: list[str] = []
            with store.begin(chat.id) as writer:
                for event in runtime.generate(request):
                    writer.append(event.text)
                    shown.append(event.text)
                    if turn in (1, 2) and len(shown) == 5:
                        pid = runtime.status().pid
                        assert pid is not None
                        os.kill(pid, signal.SIGKILL)
                interrupted = event.finish_reason == "interrupted"
                writer.finish({"note": event.note}, status="interrupted" if interrupted else "complete")
            said += [f"question {turn}", "".join(shown)]
        assert runtime.status().n_restarts == 2
    with Store.open(path) as store:
        kept = store.messages(chat.id)
    assert [message.text for message in kept] == said
    assert [message.status for message in kept[1::2]] == ["complete", "interrupted", "interrupted", "complete"]
    assert "was killed while answering" in str(kept[3].record["note"])
