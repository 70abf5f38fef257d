"""Peers over HTTP: streams are counted and timed, refusals are sentences, unknown peers name the known kinds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edge_specquant.bench.measure.measurement import Case
from edge_specquant.bench.peers.peer_http import LlamaServerPeer, OpenAIPeer, is_llama_server
from edge_specquant.bench.peers.peers import open_peers
from edge_specquant.errors import EngineError, UsageError
from edge_specquant.gguf.family.family import Family
from edge_specquant.runtime import EngineOptions

CASE = Case("c", "story", "hello", 3)
IDS = [11, 12, 13]


class Server(ThreadingHTTPServer):
    """Answers as llama.cpp's server and as OpenAI's API do; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.is_llama = True
        self.fails = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/props" and self.server.is_llama:
            self._send({"default_generation_settings": {}})
        elif self.path == "/v1/models":
            self._send({"data": [{"id": "m"}]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, request))
        if self.server.fails:
            self.send_error(500, "out of slots")
        elif self.path == "/apply-template":
            self._send({"prompt": f"<{request['messages'][0]['content']}>"})
        elif self.path == "/completion":
            events = [{"content": "x", "tokens": [token]} for token in IDS]
            timings = {"prompt_n": 4, "predicted_n": 3, "draft_n": 2, "draft_n_accepted": 1}
            self._stream([*events, {"content": "", "tokens": [], "timings": timings}], done=False)
        else:
            pieces = [{"choices": [{"delta": {"content": "x"}}]} for _ in range(2)]
            self._stream([*pieces, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}], done=True)

    def _send(self, found: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def _stream(self, events: list[dict[str, Any]], done: bool) -> None:
        self.send_response(200)
        self.end_headers()
        for event in events:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        if done:
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_llama_server_gets_our_ids_and_is_counted(server: Server) -> None:
    sample = LlamaServerPeer(server.url, lambda _case: [7, 8]).measure(CASE)
    assert sample.tokens == tuple(IDS) and sample.n_generated == 3 and sample.n_prompt == 4
    assert sample.n_drafted == 2 and sample.n_accepted == 1
    assert sample.ttft_s is not None and sample.ttft_s > 0 and sample.decode_s >= 0
    path, request = server.asked[0]
    assert path == "/completion" and request["prompt"] == [7, 8] and request["n_predict"] == 3
    assert request["temperature"] == 0 and request["cache_prompt"] is False


def test_a_foreign_llama_server_applies_its_own_template(server: Server) -> None:
    LlamaServerPeer(server.url, None).measure(CASE)
    assert server.asked[-1][1]["prompt"] == "<hello>"


def test_openai_servers_are_counted_by_their_usage(server: Server) -> None:
    sample = OpenAIPeer(server.url, None).measure(CASE)
    assert sample.n_generated == 3 and sample.n_prompt == 9 and sample.tokens == ()
    path, request = server.asked[0]
    assert path == "/v1/chat/completions" and request["model"] == "m" and request["max_tokens"] == 3


def test_servers_are_told_apart(server: Server) -> None:
    assert is_llama_server(server.url)
    server.is_llama = False
    assert not is_llama_server(server.url)
    with open_peers([f"{server.url}#big"], _no_family(), EngineOptions(), say=lambda _text: None) as contestants:
        (one,) = contestants
        assert one.baseline == one.name and one.measure(CASE).n_generated == 3
    assert server.asked[-1][1]["model"] == "big"


def test_failures_are_sentences(server: Server) -> None:
    server.fails = True
    with pytest.raises(EngineError, match="answered 500"):
        LlamaServerPeer(server.url, lambda _case: [1]).measure(CASE)
    with pytest.raises(EngineError, match="cannot be reached"):
        is_llama_server("http://127.0.0.1:9")
    with pytest.raises(UsageError, match="give xllamacpp, ollama:MODEL or a URL"), _peer("vllm"):
        pass


def _peer(name: str) -> Any:
    return open_peers([name], _no_family(), EngineOptions(), say=lambda _text: None)


def _no_family() -> Family:
    return Family("none", Path(), {}, None)


def test_llama_cpps_own_server_answers_from_our_file(tiny_gguf: Path) -> None:
    pytest.importorskip("xllamacpp")
    family = Family.open(tiny_gguf)
    options = EngineOptions(n_ctx=512, n_threads=1)
    with open_peers(["xllamacpp"], family, options, say=lambda _text: None) as contestants:
        (one,) = contestants  # a family of one has no draft
        sample = one.measure(Case("c", "story", "Tell me.", 6))
    assert 1 <= sample.n_generated <= 6 and sample.n_prompt and sample.ttft_s
