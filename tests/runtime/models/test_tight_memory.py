"""A real engine with little memory: it answers by the next smaller plan, and by siblings that come and go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_rig import GREEDY, drained

from edge_specquant.gguf.family.family import Family
from edge_specquant.params import SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime import Conversation, EngineOptions, Runtime
from edge_specquant.runtime.local import LocalEngine
from edge_specquant.runtime.models.under_plan import planner_of

_MEBIBYTES = 410  # F16 of the demo takes 258 and 180 of KV cells at 8192 tokens, 90 at 4096

_CHILD = """
import json, resource, sys
from edge_specquant.params import SamplingParams
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime

request = Request(prompt="Say hello.", target="f16", max_tokens=4, sampling=SamplingParams(temperature=0))
options = EngineOptions(calibrate=False, n_threads=1, snapshot_bytes=0, use_kernel=False)
with Runtime.local(sys.argv[1], options) as runtime:
    siblings = runtime.siblings(request)  # self-test and plan come before the limit
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (int(sys.argv[2]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    events = list(runtime.generate(request))
    status = runtime.status()
    print(json.dumps({
        "siblings": siblings,
        "n_tokens": sum(event.token_id is not None for event in events),
        "n_ctx": {resident.name: resident.n_ctx for resident in status.residents},
        "plan": status.plan.as_json(),
        "notices": runtime.notices,
    }))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space limits as Linux counts them")
def test_an_allocation_that_fails_is_answered_by_the_next_smaller_plan(demo_family: Family) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(demo_family.folder), str(_MEBIBYTES)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["siblings"] == ["f16", "lookup+q4"] and found["n_tokens"] == 4
    assert found["n_ctx"] == {"f16": found["plan"]["n_ctx"]} and found["plan"]["n_ctx"] < 8192
    assert found["plan"]["draft"] is None
    assert found["notices"][0] == "memory for f16 could not be had: no draft now"
    assert any(f"context of {found['plan']['n_ctx']} tokens now" in notice for notice in found["notices"])


@pytest.mark.parametrize("n_parallel", [1, 2])
def test_siblings_that_make_room_for_each_other_answer_as_if_alone(tiny_family: Family, n_parallel: int) -> None:
    options = EngineOptions(calibrate=False, n_ctx=256, n_threads=1, n_parallel=n_parallel)
    make = planner_of(tiny_family, options)
    tight = LocalEngine(tiny_family, options, make_plan=lambda wish: replace(make(wish), n_budget=1))
    roomy = LocalEngine(tiny_family, options)
    answers: list[list[str]] = []
    for engine in (tight, roomy):
        conversation, texts = Conversation("Be brief."), []
        with Runtime(tiny_family, options, engine) as runtime:
            for target in ("f16", "q8", "q4", "f16", "f16", "q8"):
                reply = runtime.chat(
                    conversation,
                    "Go on.",
                    target=target,
                    sampling=GREEDY,
                    max_tokens=8,
                    speculation=SpeculationParams(draft="none"),
                )
                texts.append(drained(reply)[0])
                names = [resident.name for resident in engine.status().residents]
                assert names == [target] or engine is roomy
                assert runtime.tokens(Request(prompt="x"))
        answers.append(texts)
    assert answers[0] == answers[1]
    assert tight.status().n_evicted >= 4 and roomy.status().n_evicted == 0
