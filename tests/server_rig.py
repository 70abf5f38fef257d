"""What the server's tests share: runtimes on scripted logits, and a real server on a free port of this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from patience import PATIENCE_S

from edge_specquant.gguf.family.family import Family, Variant
from edge_specquant.native.fake import N_BYTES, FakeContext, FakeModel, FakeVocab, NextLogits, one_hot
from edge_specquant.native.protocol import ContextParams, Model
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.local import LocalEngine
from edge_specquant.server.app import Services
from edge_specquant.server.options import ServerOptions
from edge_specquant.server.serve import Address, Server, listen, url_of
from edge_specquant.server.setup import services_for

ASSISTANT = b"Assistant:"  # how the template without control markers ends a prompt


def saying(*replies: bytes) -> NextLogits:
    """Answers a conversation's last turn with replies[number of earlier replies], byte by byte, then ends."""

    def next_logits(history: Sequence[int]) -> Any:
        said = bytes(token for token in history if token < N_BYTES)
        turn = said.count(ASSISTANT)
        reply = replies[min(turn, len(replies)) - 1] if turn else replies[0]
        start = said.rfind(ASSISTANT) + len(ASSISTANT) if turn else 0
        done = len(said) - start
        return one_hot(reply[done] if 0 <= done < len(reply) else N_BYTES)

    return next_logits


def endless(history: Sequence[int]) -> Any:
    """a, b, c ... for ever."""
    return one_hot(97 + len(history) % 26)


def echoing(history: Sequence[int]) -> Any:
    """A letter that depends on the whole history, for ever: a wrong cache gives a wrong letter."""
    total = int(np.frombuffer(np.asarray(history, dtype=np.int64).tobytes(), dtype=np.uint8).sum())
    return one_hot(97 + (total + 7 * len(history)) % 26)


@dataclass
class Rig:
    """A runtime over one fake model, with its contexts at hand. pause_s: what each decode takes at least."""

    next_logits: NextLogits
    pause_s: float = 0.0
    n_ctx: int = 4096
    chat_template: str | None = None
    variants: tuple[str, ...] = ("q4", "q8", "f16")
    name: str = "fake"
    n_parallel: int = 1
    before_decode: Callable[[], None] | None = None
    vocab: FakeVocab = field(default_factory=FakeVocab)
    models: list[FakeModel] = field(default_factory=list)

    def runtime(self) -> Runtime:
        """A runtime; every sibling is the same fake model."""
        variants = {name: Variant(name, Path(f"{name}.gguf"), 1, 16.0, {}, "F16", None) for name in self.variants}
        family = Family(self.name, Path(), variants, None)
        options = EngineOptions(n_ctx=self.n_ctx, n_parallel=self.n_parallel)
        return Runtime(family, options, LocalEngine(family, options, open_variant=lambda _name, _go: self._open()))

    @property
    def contexts(self) -> list[FakeContext]:
        """Every context made so far."""
        return [context for model in self.models for context in model.contexts]

    def _open(self) -> FakeModel:
        rig = self

        class Model(FakeModel):
            def context(self, params: ContextParams) -> FakeContext:
                made = super().context(params)
                made.before_decode = rig._before
                return made

        model = Model(self.next_logits, chat_template=self.chat_template, vocab=self.vocab)
        self.models.append(model)
        return model

    def _before(self) -> None:
        if self.before_decode is not None:
            self.before_decode()
        if self.pause_s:
            time.sleep(self.pause_s)


@dataclass
class Served:
    """A server that is up."""

    url: str
    services: Services
    port: int

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
        """(status, parsed body, headers). A body of bytes is sent as it is."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, {"Content-Type": "application/json", **(headers or {})})

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
        """(status, parsed body, headers)."""
        return self.request("GET", path, None, headers or {})

    def request(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        """One exchange on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        with contextlib.closing(connection):
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            raw = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(raw) if is_json else raw, dict(response.headers)

    def events(self, path: str, body: dict[str, object]) -> list[str]:
        """The data of every event of a stream, in order."""
        status, raw, headers = self.post(path, {**body, "stream": True})
        assert status == 200, raw
        assert headers["content-type"].startswith("text/event-stream")
        parts = raw.decode().split("\n\n")
        assert parts.pop() == "", "the stream ends with a whole event"
        assert all(part.startswith("data: ") and "\n" not in part for part in parts), parts
        return [part.removeprefix("data: ") for part in parts]

    def chunks(self, path: str, body: dict[str, object]) -> list[dict[str, Any]]:
        """The JSON of every event before [DONE]."""
        *events, last = self.events(path, body)
        assert last == "[DONE]"
        return [json.loads(event) for event in events]

    def raw(self) -> socket.socket:
        """A plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


@contextlib.contextmanager
def serving(
    runtime: Runtime,
    options: ServerOptions | None = None,
    *,
    policy: str | None = None,
    vocabulary: Callable[[], Model] | None = None,
) -> Iterator[Served]:
    """A real server in a thread, on a free port; drained and closed at the end, together with the runtime."""
    options = options or ServerOptions(drain_s=1.0)
    services = services_for(runtime, options, policy=policy, vocabulary=vocabulary)
    listener = listen(Address("127.0.0.1", 0))
    ready = threading.Event()
    server = Server(services, lambda: options, lambda _url: ready.set())
    thread = threading.Thread(target=server.run, args=([listener],), name="server")
    port = listener.getsockname()[1]
    url = url_of(listener)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S), "the server did not start"
        yield Served(url, services, port)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not end"
        runtime.close()


def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    """Whether the condition comes true; asked until then."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
