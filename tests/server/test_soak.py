"""Two thousand short requests from eight clients, some of whom leave: right answers, flat memory, no stuck place."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from server_rig import Served, eventually, serving

from edge_specquant.gguf.family import Family
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.server.options import ServerOptions

N_REQUESTS = 2_000
N_CLIENTS = 8
SHARE_OF_LEAVERS = 0.2
MAX_GROWTH_BYTES = 32 << 20
WORDS = ("red", "blue", "bread", "rain", "Paris", "seven", "a cat", "the moon", "iron", "salt", "tea", "snow")

pytestmark = pytest.mark.slow


def body(word: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Answer in few words."}, {"role": "user", "content": f"What is {word}?"}]
    # strict, and one reply at a time: how much is decoded at once must be the same from run to run, or a near-tie tips.
    return {"model": "demo:q4", "messages": messages, "temperature": 0, "max_tokens": 6, "strict": True, **fields}


class Soak:
    """The clients and what they saw."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._rng = random.Random(9)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.rss: list[int] = []
        self.solo = {word: self._ask(word)[1] for word in WORDS}

    def one(self, number: int) -> None:
        """One request: a leaver reads a few events and goes, the others compare."""
        with self._lock:
            word, leaves = self._rng.choice(WORDS), self._rng.random() < SHARE_OF_LEAVERS
            n_events = self._rng.randrange(4)
        begun = time.perf_counter()
        seen = self._leave(word, n_events) if leaves else self._compare(word)
        with self._lock:
            self.counts[seen] += 1
            if not leaves:
                self.latencies_s.append(time.perf_counter() - begun)
            if number % 100 == 0:
                self.rss.append(psutil.Process().memory_info().rss)

    def _compare(self, word: str) -> str:
        status, text = self._ask(word)
        if status != 200:
            return f"status {status}"
        return "right" if text == self.solo[word] else "wrong"

    def _ask(self, word: str) -> tuple[int, str]:
        status, answer, _ = self._served.post("/v1/chat/completions", body(word))
        return status, json.dumps(answer.get("choices"))

    def _leave(self, word: str, n_events: int) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=120)
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
            f"p95 {p95:.2f} s, p99 {p99:.2f} s; memory {self.rss[-1] / 2**20:.0f} MiB, "
            f"{growth:+.1f} MiB since a quarter of the run"
        )


def test_soak(demo_family: Family, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = Runtime.local(demo_family.name, EngineOptions(n_ctx=512, snapshot_bytes=8 << 20))
    with serving(runtime, ServerOptions(queue=64, drain_s=5)) as served:
        soak = Soak(served)
        begun = time.perf_counter()
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            list(pool.map(soak.one, range(N_REQUESTS)))
        wall_s = time.perf_counter() - begun
        with capsys.disabled():
            print(f"\nsoak: {soak.report(wall_s)}")
        engine = served.services.engine
        assert eventually(lambda: not engine.n_running and not engine.n_waiting), "a place is stuck"
        assert set(soak.counts) <= {"right", "left"}
        assert soak.rss[-1] - soak.rss[len(soak.rss) // 4] < MAX_GROWTH_BYTES
