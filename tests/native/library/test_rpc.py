"""RPC between two processes of this machine; skipped where the engine was built without it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_specquant.errors import EngineError
from edge_specquant.native.library.devices import add_rpc, require_rpc

REPLY = """
import re, sys
from pathlib import Path
from edge_specquant.native.library.devices import add_rpc
from edge_specquant.native.library.library import log_sink
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams

path, endpoints, n_gpu_layers = Path(sys.argv[1]), sys.argv[2].split(",") if sys.argv[2] else [], int(sys.argv[3])
added = [device for endpoint in endpoints for device in add_rpc(endpoint)]
split = [1.0] * len(added)
with NativeModel(path, use_extra_bufts=False, n_gpu_layers=n_gpu_layers, tensor_split=split) as model:
    with model.context(ContextParams(n_ctx=256, n_threads=1)) as context:
        tokens, out = [1, 72, 104, 111], []
        for _ in range(16):
            row = context.decode(tokens[-(len(tokens) - context.used()) :], context.used())[0]
            tokens.append(int(row.argmax()))
held = set(re.findall(r"RPC\\d+\\[(\\S+)\\] model buffer size", log_sink.tail(400)))
print(*(device.kind for device in added), "|", *sorted(held), "|", *tokens)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def workers() -> Iterator[list[str]]:
    """Two `rpc-worker` processes on loopback ports."""
    try:
        require_rpc()
    except EngineError as error:
        pytest.skip(str(error))
    endpoints = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    command = [sys.executable, "-c", "from edge_specquant.cli import main; main()", "rpc-worker", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([*command, "--listen", e], env=environment, stderr=subprocess.DEVNULL) for e in endpoints
    ]
    try:
        for endpoint in endpoints:
            wait_for(endpoint)
        yield endpoints
    finally:
        for process in running:
            process.kill()
            process.wait()


def wait_for(endpoint: str) -> None:
    host, port = endpoint.split(":")
    for _ in range(300):
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"nobody listens at {endpoint}")


def reply(path: Path, endpoints: list[str], n_gpu_layers: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", REPLY, str(path), ",".join(endpoints), str(n_gpu_layers)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout.strip()


def test_layers_over_two_workers_give_the_same_tokens(workers, tiny_gguf):
    _, nobody, here = reply(tiny_gguf, [], 0).split("|")
    kinds, held, there = reply(tiny_gguf, workers, -1).split("|")
    assert kinds.split() == ["rpc", "rpc"]
    assert nobody.split() == [] and held.split() == sorted(workers), "both workers hold weights"
    assert there == here


def test_without_rpc_in_the_engine_or_a_worker_the_reason_is_said():
    with pytest.raises(EngineError, match=r"built without RPC|no RPC worker answers"):
        add_rpc(f"127.0.0.1:{free_port()}")
