"""Two thousand short requests from eight clients, some of whom leave: right answers, flat memory, no stuck place.

Nothing depends on time, so that it may run on a busy machine. EDGE_SPECQUANT_SOAK_REQUESTS makes it shorter or longer.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from server_rig import Served, eventually, serving

from edge_specquant.gguf.family.family import Family
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.server.options import ServerOptions

N_REQUESTS = int(os.environ.get("EDGE_SPECQUANT_SOAK_REQUESTS", "2000"))
N_CLIENTS = 8
N_PARALLEL = 4
SHARE_OF_LEAVERS, SHARE_OF_STRICT = 0.2, 0.4
PATIENCE_S = 3600
NEAR_TIE = 0.5  # in log-probability: a smaller lead of the best token may be lost to rounding in a wider batch
MAX_GROWTH_BYTES = 32 << 20
WORDS = ("red", "blue", "bread", "rain", "Paris", "seven", "a cat", "the moon", "iron", "salt", "tea", "snow")

pytestmark = pytest.mark.slow


def body(word: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Answer in few words."}, {"role": "user", "content": f"What is {word}?"}]
    return {"model": "demo:q4", "messages": messages, "temperature": 0, "max_tokens": 6, **fields}


Spoken = list[dict[str, Any]]
"""The tokens of an answer, each with its log-probability and the two likeliest ones."""


def lead_at_first_difference(solo: Spoken, other: Spoken) -> float | None:
    """How far the best token led where the answers part, in log-probability; None where they are the same."""
    n_same = next((i for i, (a, b) in enumerate(zip(solo, other, strict=False)) if a["token"] != b["token"]), None)
    if n_same is None:
        if len(solo) == len(other):
            return None
        n_same = min(len(solo), len(other))  # one of them ended here, and an end is not listed
    there = (solo if len(solo) > n_same else other)[n_same]
    first, second = (top["logprob"] for top in there["top_logprobs"])
    return float(first - second)


class Soak:
    """The clients and what they saw."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._rng = random.Random(9)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.rss: list[int] = []
        self.leads: list[float] = []
        self.solo = {(word, strict): self._ask(word, strict)[1] for word in WORDS for strict in (False, True)}

    def one(self, number: int) -> None:
        """One request: a leaver reads a few events and goes, the others compare."""
        with self._lock:
            word, leaves = self._rng.choice(WORDS), self._rng.random() < SHARE_OF_LEAVERS
            n_events, is_strict = self._rng.randrange(4), self._rng.random() < SHARE_OF_STRICT
        begun = time.perf_counter()
        seen = self._leave(word, n_events) if leaves else self._compare(word, is_strict)
        with self._lock:
            self.counts[seen] += 1
            if not leaves:
                self.latencies_s.append(time.perf_counter() - begun)
            if number % 100 == 0:
                self.rss.append(psutil.Process().memory_info().rss)

    def _compare(self, word: str, is_strict: bool) -> str:
        """strict: to the last bit of every log-probability. Else the tokens, up to a near-tie that rounding tips."""
        status, spoken = self._ask(word, is_strict)
        if status != 200:
            return f"status {status}"
        solo = self.solo[word, is_strict]
        if is_strict:
            return "strict right" if spoken == solo else "strict wrong"
        lead = lead_at_first_difference(solo, spoken)
        if lead is not None:
            self.leads.append(lead)
        return "right" if lead is None else "tipped near-tie" if lead < NEAR_TIE else "wrong"

    def _ask(self, word: str, is_strict: bool) -> tuple[int, Spoken]:
        asked = body(word, strict=is_strict, logprobs=True, top_logprobs=2)
        status, answer, _ = self._served.post("/v1/chat/completions", asked)
        return status, answer["choices"][0]["logprobs"]["content"] if status == 200 else []

    def _leave(self, word: str, n_events: int) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=PATIENCE_S)
        asked = json.dumps(body(word, stream=True, max_tokens=200))
        connection.request("POST", "/v1/chat/completions", asked, {"Content-Type": "application/json"})
        if n_events:
            response = connection.getresponse()
            for _ in range(2 * n_events):
                response.readline()
            response.close()
        connection.close()
        return "left"

    def report(self, wall_s: float) -> str:
        """One line of figures."""
        ordered = sorted(self.latencies_s)
        p50, p95, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.95, 0.99))
        growth = (self.rss[-1] - self.rss[len(self.rss) // 4]) / 2**20
        return (
            f"{dict(self.counts)} in {wall_s:.0f} s, {N_REQUESTS / wall_s:.1f}/s; latency p50 {p50:.2f} s, "
            f"p95 {p95:.2f} s, p99 {p99:.2f} s; widest lead lost {max(self.leads, default=0):.2f}; "
            f"memory {self.rss[-1] / 2**20:.0f} MiB, {growth:+.1f} MiB since a quarter of the run"
        )


def test_soak(demo_family: Family, capsys: pytest.CaptureFixture[str]) -> None:
    options = EngineOptions(n_ctx=512, snapshot_bytes=8 << 20, n_parallel=N_PARALLEL)
    runtime = Runtime.local(demo_family.name, options)
    with serving(runtime, ServerOptions(queue=64, drain_s=5, timeout_s=PATIENCE_S)) as served:
        soak = Soak(served)
        begun = time.perf_counter()
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            list(pool.map(soak.one, range(N_REQUESTS)))
        wall_s = time.perf_counter() - begun
        with capsys.disabled():
            print(f"\nsoak: {soak.report(wall_s)}")
        engine = served.services.engine
        assert eventually(lambda: not engine.n_running and not engine.n_waiting, PATIENCE_S), "a place is stuck"
        assert set(soak.counts) <= {"right", "strict right", "tipped near-tie", "left"}
        assert soak.rss[-1] - soak.rss[len(soak.rss) // 4] < MAX_GROWTH_BYTES
