"""The verbs plan, doctor and rpc-worker as a user meets them, on this very machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_specquant.errors import UsageError
from edge_specquant.native.library.devices import check_endpoint, list_devices


def run(*arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-c", "from edge_specquant.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_doctor_says_what_is_here_and_exits_by_whether_a_chat_would_work():
    done = run("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == (0 if document["can_chat"] else 1)
    assert document["machine"]["memory"]["n_free"] > 0 and document["engine"]["self_test"]["tested"]
    missing = document["machine"]["missing"]
    assert all(missing.values())
    table = run("doctor")
    assert table.returncode == done.returncode and "this machine" in table.stdout and "what fits" in table.stdout


def test_doctor_fails_when_there_is_nothing_to_chat_with(tmp_path):
    home = tmp_path / "home"
    (home / "families" / "[bold]broken").mkdir(parents=True)
    (home / "families" / "[bold]broken" / "manifest.json").write_text("{")
    done = run("doctor", "--json", EDGE_SPECQUANT_HOME=str(home))
    families = json.loads(done.stdout)["families"]
    assert "problem" in families["[bold]broken"]
    assert "[bold]broken" in run("doctor", EDGE_SPECQUANT_HOME=str(home)).stdout  # shown verbatim


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity masks of Linux")
def test_an_affinity_mask_of_one_cpu_means_one_thread():
    cpu = min(os.sched_getaffinity(0))
    done = run("doctor", "--json", prefix=("taskset", "-c", str(cpu)))
    assert json.loads(done.stdout)["n_threads"] == 1


def test_plan_of_a_single_file_as_table_and_json(tiny_gguf):
    document = json.loads(run("plan", str(tiny_gguf), "--json").stdout)
    assert document["target"]["variant"] and document["draft"] is None
    assert document["n_bytes"] > Path(tiny_gguf).stat().st_size // 2
    assert {"topic", "choice", "reason", "runner_up"} == set(document["reasons"][0])
    table = run("plan", str(tiny_gguf), "--ctx", "256", "--objective", "speed")
    assert table.returncode == 0 and "256 tokens" in table.stdout and "asked for" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ctx", "99999999999"), "do not fit"),
        (("--kv", "q9"), "not a KV cache type"),
        (("--target", "q3"), "no variant 'q3'"),
        (("--rpc", "nonsense"), "not an RPC address"),
    ],
)
def test_what_cannot_be_is_one_sentence(tiny_gguf, arguments, words):
    done = run("plan", str(tiny_gguf), *arguments)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_a_worker_serves_one_named_address_only():
    for address in ("0.0.0.0:50052", "[::]:50052", "*:1", "here", "host:99999", ":50052"):
        with pytest.raises(UsageError):
            check_endpoint(address)
    assert check_endpoint("127.0.0.1:50052") == ("127.0.0.1", 50052)
    done = run("rpc-worker", "--listen", "0.0.0.0:50052")
    assert done.returncode == 1 and "every network" in done.stderr


def test_the_engine_lists_a_processor_at_least():
    devices = list_devices()
    assert any(device.kind == "cpu" and device.name for device in devices)
