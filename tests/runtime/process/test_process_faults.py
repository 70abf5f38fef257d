"""Whatever happens to the engine's process, the reply so far is kept, the reason is said, and the next one works."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from runtime_rig import GREEDY, drained

from edge_specquant.engine.events import TokenEvent
from edge_specquant.errors import EngineError, UsageError
from edge_specquant.gguf.family.family import Family
from edge_specquant.params import SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime import Conversation, EngineOptions, Runtime
from edge_specquant.runtime.process.child_handle import Patience
from edge_specquant.runtime.process.process_engine import ProcessEngine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="faults are signals")

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a stopped child with its parent")
FAULTY = Path(__file__).with_name("faulty_child.py")
OPTIONS = EngineOptions(calibrate=False, n_ctx=512, n_batch=32, n_threads=1)
IMPATIENT = Patience(hang_s=2.0, load_s=2.0, stall_s=3.0)
# Read in more than one batch; its greedy reply has no near-tie (smallest gap of the top two logits: 0.13).
PROMPT = "a prompt of some length, so that it is read in more than one batch of the engine z"
REQUEST = Request(
    prompt=PROMPT,
    raw=True,
    target="f16",
    max_tokens=40,
    min_tokens=40,
    sampling=GREEDY,
    speculation=SpeculationParams("q4", 3),
)

Open = Callable[..., Runtime]


@pytest.fixture
def faulty(tiny_family: Family, tmp_path: Path) -> Iterator[Open]:
    """Runtimes whose child fails n times at a phase; closed at the end, and checked for orphans."""
    opened: list[Runtime] = []

    def make(
        phase: str = "none",
        how: str = "none",
        n: int = 1,
        options: EngineOptions = OPTIONS,
        patience: Patience = IMPATIENT,
    ) -> Runtime:
        command = [sys.executable, str(FAULTY), phase, how, str(tmp_path / f"faults-{n}")]
        engine = ProcessEngine(tiny_family, options, command=command, patience=patience)
        opened.append(Runtime(tiny_family, options, engine))
        return opened[-1]

    yield make
    for runtime in opened:
        pid = runtime.status().pid
        runtime.close()
        assert pid is None or not is_running(pid)


@pytest.fixture(scope="module")
def plain(tiny_family: Family) -> list[int]:
    """The ids of the whole reply."""
    with Runtime.local(tiny_family.folder, OPTIONS) as runtime:
        return drained(runtime.generate(REQUEST))[1]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("phase", "how"),
    [
        *((phase, "SIGKILL") for phase in ("load", "prefill", "draft", "verify")),
        ("load", "exit"),
        ("prefill", "SIGSEGV"),
        ("draft", "SIGABRT"),
        ("verify", "SIGSEGV"),
    ],
)
def test_killed_at_any_phase(faulty: Open, plain: list[int], phase: str, how: str) -> None:
    runtime = faulty(phase, how)
    events = list(runtime.generate(REQUEST))
    ids = [event.token_id for event in events if event.token_id is not None]
    notes = [event.note for event in events if event.note]
    assert len(notes) == 1
    assert {"SIGKILL": "was killed", "exit": "exit status 7"}.get(how, how) in notes[0]
    if phase in ("load", "prefill"):  # nothing was shown: it is tried again by itself
        assert events[-1].finish_reason == "length" and ids == plain
    else:
        assert events[-1].finish_reason == "interrupted" and events[-1].note == notes[0]
        assert 0 < len(ids) < len(plain) and ids == plain[: len(ids)]
        assert drained(runtime.generate(REQUEST))[1] == plain
    status = runtime.status()
    assert status.n_restarts == 1
    assert any(notes[0].split(";")[0] in notice for notice in status.notices)


@pytest.mark.parametrize("phase", ["load", "draft"])
def test_a_busy_machine_may_hold_it_while_it_loads(faulty: Open, plain: list[int], phase: str) -> None:
    """Longer than a hang may last: the weights are waited for, a reply under way is not."""
    runtime = faulty(phase, "pause", patience=Patience(hang_s=2.0, load_s=60.0, stall_s=60.0))
    events = list(runtime.generate(REQUEST))
    ids = [event.token_id for event in events if event.token_id is not None]
    if phase == "load":
        assert ids == plain and runtime.status().n_restarts == 0
    else:
        assert events[-1].finish_reason == "interrupted" and "no sign of life" in (events[-1].note or "")


@pytest.mark.parametrize(("phase", "said"), [("prefill", "trying again"), ("draft", "next reply")])
def test_the_second_death_on_one_input_is_the_last(faulty: Open, phase: str, said: str) -> None:
    runtime = faulty(phase, "SIGSEGV", 2)
    events = list(runtime.generate(REQUEST))
    if phase == "draft":
        assert said in (events[-1].note or "")
        events = list(runtime.generate(REQUEST))
    else:
        assert said in (events[0].note or "")
    assert events[-1].finish_reason == "interrupted"
    assert "engine.log" in (events[-1].note or "")
    with pytest.raises(EngineError, match=r"died 2 times on this input.*engine\.log"):
        next(runtime.generate(REQUEST))
    other = Request(prompt="something else", raw=True, max_tokens=3, min_tokens=3, sampling=GREEDY)
    assert drained(runtime.generate(other))[2].finish_reason == "length"


def test_a_stopped_process_is_noticed_then_ended(faulty: Open, plain: list[int]) -> None:
    runtime = faulty("draft", "hang")
    events = list(runtime.generate(REQUEST))
    notes = [event.note or "" for event in events if event.note]
    assert "gives no sign of life; waiting" in notes[0]
    assert events[-1].finish_reason == "interrupted" and "gave no sign of life" in notes[-1]
    assert drained(runtime.generate(REQUEST))[1] == plain


def test_a_standstill_is_ended_though_the_process_lives(faulty: Open, plain: list[int]) -> None:
    runtime = faulty("verify", "stall")
    events = list(runtime.generate(REQUEST))
    assert "made no progress" in (events[-1].note or "")
    assert drained(runtime.generate(REQUEST))[1] == plain


def test_long_work_is_no_hang(faulty: Open, plain: list[int]) -> None:
    runtime = faulty("prefill", "busy")
    assert drained(runtime.generate(REQUEST))[1] == plain
    assert runtime.status().n_restarts == 0


def test_a_child_that_writes_nonsense_is_ended(faulty: Open, plain: list[int]) -> None:
    runtime = faulty("draft", "garbage")
    assert drained(runtime.generate(REQUEST))[2].finish_reason == "interrupted"
    assert drained(runtime.generate(REQUEST))[1] == plain


def test_a_child_that_cannot_start_says_so(faulty: Open) -> None:
    runtime = faulty("start", "exit", 9)
    events = list(runtime.generate(REQUEST))
    assert "exit status 7" in (events[0].note or "")
    assert events[-1].finish_reason == "interrupted"


def test_a_child_that_cannot_open_the_family_says_why(faulty: Open) -> None:
    runtime = faulty("open", "error", 9)
    events = list(runtime.generate(REQUEST))
    assert "could not start: RuntimeError: something nobody foresaw" in (events[0].note or "")
    assert events[-1].finish_reason == "interrupted"


def test_an_unforeseen_error_is_a_sentence_and_the_child_lives(faulty: Open, plain: list[int]) -> None:
    runtime = faulty("draft", "error")
    reply = runtime.generate(REQUEST)
    with pytest.raises(EngineError, match="RuntimeError: something nobody foresaw"):
        drained(reply)
    assert drained(runtime.generate(REQUEST))[1] == plain
    assert runtime.status().n_restarts == 0


def test_those_who_wait_are_not_hurt(faulty: Open, plain: list[int]) -> None:
    runtime = faulty("draft", "SIGKILL")
    running = runtime.generate(REQUEST)
    first = next(running)
    ids: list[list[int]] = []
    other = replace(REQUEST, speculation=SpeculationParams("none"))
    waiting = threading.Thread(target=lambda: ids.append(drained(runtime.generate(other))[1]))
    waiting.start()
    events = [first, *running]
    waiting.join()
    assert events[-1].finish_reason == "interrupted"
    assert ids == [plain]


def test_the_partial_answer_stays_in_the_conversation(faulty: Open) -> None:
    runtime = faulty("draft", "SIGKILL")
    conversation = Conversation()
    fields: dict[str, Any] = {"target": "f16", "max_tokens": 40, "min_tokens": 40, "sampling": GREEDY}
    fields["speculation"] = SpeculationParams("q4", 3)
    text, ids, _ = drained(runtime.chat(conversation, PROMPT, **fields))
    assert conversation.messages[-1].finish_reason == "interrupted"
    assert conversation.messages[-1].text == text and list(conversation.messages[-1].token_ids) == ids
    drained(runtime.chat(conversation, None, **fields))
    assert [message.finish_reason for message in conversation.messages] == [None, "length"]


def test_two_runtimes_do_not_know_each_other(faulty: Open, plain: list[int]) -> None:
    broken, healthy = faulty("verify", "SIGSEGV"), faulty()
    events: list[TokenEvent] = []
    thread = threading.Thread(target=lambda: events.extend(broken.generate(REQUEST)))
    thread.start()
    assert drained(healthy.generate(REQUEST))[1] == plain
    thread.join()
    assert events[-1].finish_reason == "interrupted"
    assert healthy.status().n_restarts == 0


def test_a_memory_limit_is_an_answer_or_a_sentence(tiny_family: Family) -> None:
    limited = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); "
        "sys.argv[0] = 'child'; runpy.run_module('edge_specquant.runtime.process.child', run_name='__main__')"
    )
    engine = ProcessEngine(tiny_family, OPTIONS, command=[sys.executable, "-c", limited])
    with Runtime(tiny_family, OPTIONS, engine) as runtime:
        huge = EngineOptions(calibrate=False, n_ctx=1 << 22)
        small = drained(runtime.generate(REQUEST))[2]
        assert small.finish_reason == "length" or small.note
        engine_of_huge = ProcessEngine(tiny_family, huge, command=[sys.executable, "-c", limited])
        with Runtime(tiny_family, huge, engine_of_huge) as other:
            try:
                end = drained(other.generate(REQUEST))[2]
            except EngineError as error:
                assert "try a smaller --ctx" in str(error)
            else:
                assert end.note or end.finish_reason == "length"


@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=LINUX)])
def test_the_child_does_not_outlive_its_parent(tiny_family: Family, stopped: bool) -> None:
    script = f"""
        import os, signal, time
        from edge_specquant import EngineOptions, Runtime
        runtime = Runtime.process({str(tiny_family.folder)!r}, EngineOptions(calibrate=False, n_ctx=512))
        reply = runtime.generate("hello")
        next(reply)
        pid = runtime.status().pid
        if {stopped}:
            os.kill(pid, signal.SIGSTOP)
        print(pid, flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)


def test_a_closed_runtime_says_so(faulty: Open) -> None:
    runtime = faulty()
    drained(runtime.generate(REQUEST))
    runtime.close()
    runtime.close()
    with pytest.raises(UsageError, match="closed"):
        next(runtime.generate(REQUEST))
