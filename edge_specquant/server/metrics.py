"""Counters for Prometheus. `spec_decode_*` names and meanings are vLLM's; the others are ours."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..engine.events import TokenEvent
from ..engine.stats import SpeculationStats

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)


class Metrics:
    """One registry for one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._ended = Counter(
            "edge_specquant_requests", "Replies by how they ended.", ["finished_reason"], registry=registry
        )
        self._http = Counter("edge_specquant_http_responses", "HTTP answers.", ["route", "status"], registry=registry)
        self._prompt = Counter("edge_specquant_prompt_tokens", "Prompt tokens.", registry=registry)
        self._cached = Counter("edge_specquant_cached_tokens", "Prompt tokens not decoded again.", registry=registry)
        self._generated = Counter("edge_specquant_generation_tokens", "Tokens generated.", registry=registry)
        self._ttft = Histogram(
            "edge_specquant_time_to_first_token_seconds",
            "From the start of the reply.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._latency = Histogram(
            "edge_specquant_e2e_request_latency_seconds", "From the queue.", registry=registry, buckets=_SECONDS
        )
        self._running = Gauge("edge_specquant_requests_running", "Replies being made.", registry=registry)
        self._waiting = Gauge("edge_specquant_requests_waiting", "Requests in the queue.", registry=registry)
        self._rounds = Counter("spec_decode_num_drafts", "Drafts verified.", registry=registry)
        self._drafted = Counter("spec_decode_num_draft_tokens", "Tokens drafted.", registry=registry)
        self._accepted = Counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", registry=registry)

    def watch(self, n_waiting: Callable[[], int], n_running: Callable[[], int]) -> None:
        """Where the gauges read from."""
        self._waiting.set_function(n_waiting)
        self._running.set_function(n_running)

    def ended(self, event: TokenEvent, latency_s: float) -> None:
        """A reply came to its last event."""
        self._ended.labels(event.finish_reason).inc()
        self._latency.observe(latency_s)
        if event.stats is not None:
            self._count(event.stats)

    def failed(self) -> None:
        """A reply ended with an error."""
        self._ended.labels("error").inc()

    def refused(self) -> None:
        """A request found the queue full."""
        self._ended.labels("refused").inc()

    def answered(self, route: str, status: int) -> None:
        """An HTTP answer went out; `route` is the template of the path, never the path."""
        self._http.labels(route, str(status)).inc()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def _count(self, stats: SpeculationStats) -> None:
        self._prompt.inc(stats.n_prompt)
        self._cached.inc(stats.n_cached)
        self._generated.inc(stats.n_generated)
        if stats.ttft_s is not None:
            self._ttft.observe(stats.ttft_s)
        if stats.n_drafted:
            self._rounds.inc(stats.n_rounds)
            self._drafted.inc(stats.n_drafted)
            self._accepted.inc(stats.n_accepted)
