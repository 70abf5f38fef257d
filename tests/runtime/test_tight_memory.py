"""A real engine whose process may not have enough memory for the plan: it answers with the next smaller one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_specquant.gguf.family import Family

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
    assert f"context of {found['plan']['n_ctx']} tokens now" in found["notices"][-1]
