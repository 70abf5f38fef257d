"""The serve command as a process: key, readiness, reload and an end that drains, as systemd sees them. Tiny family."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import click
import pytest
from patience import PATIENCE_S
from server_rig import eventually, serving

from edge_specquant.cli.main import root
from edge_specquant.config import settings_path
from edge_specquant.runtime import EngineOptions, Runtime

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and datagram sockets of Unix")


class Command:
    """A running `edge-specquant serve`, with its lines of standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._new: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, pattern: str, timeout_s: float = PATIENCE_S) -> str:
        """The group of the first line that matches."""
        try:
            while (line := self._new.get(timeout=timeout_s)) is not None:
                if found := re.search(pattern, line):
                    return found[1]
        except Empty:
            pass
        raise AssertionError(f"no {pattern} in {self.lines}")

    def end(self) -> int:
        """Waits for the end; the exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            self._new.put(line)
        self.process.stderr.close()
        self._new.put(None)


@contextlib.contextmanager
def serve(*arguments: str, **environment: str) -> Iterator[Command]:
    command = [sys.executable, "-c", "from edge_specquant.cli import main; main()", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL
    )
    running = Command(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        running.end()


def post(url: str, body: dict[str, Any], key: str | None = None) -> Any:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return answer.read()


@pytest.fixture(scope="module")
def body(tiny_gguf: Path) -> dict[str, Any]:
    return {"model": f"{tiny_gguf.stem}:f16", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture
def notify_path() -> Iterator[str]:
    """For a socket: its path holds 103 bytes, too few for a temporary folder of any length."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield f"{folder}/notify"


def test_readiness_reload_and_drain(tiny_gguf: Path, body: dict[str, Any], notify_path: str) -> None:
    states = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.closing(states):
        states.bind(notify_path)
        states.settimeout(PATIENCE_S)
        with serve(str(tiny_gguf), "--ctx", "256", NOTIFY_SOCKET=notify_path) as running:
            url = running.wait_for(r"(http://\S+/v1)")
            assert states.recv(256) == b"READY=1"
            assert json.loads(post(url, body))["usage"]["completion_tokens"] <= 4

            settings_path().parent.mkdir(parents=True, exist_ok=True)
            settings_path().write_text('[server]\napi_key = "sk-from-the-settings"\n')
            try:
                running.process.send_signal(signal.SIGHUP)
                assert states.recv(256).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
                assert states.recv(256) == b"READY=1"
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    post(url, body)
                assert post(url, body, "sk-from-the-settings")
            finally:
                settings_path().unlink()

            streamed: list[bytes] = []
            long = {**body, "stream": True, "max_tokens": 200, "min_tokens": 200}
            reader = threading.Thread(target=lambda: streamed.append(post(url, long, "sk-from-the-settings")))
            reader.start()
            running.wait_for(r"POST (/v1/chat/completions) 401")
            running.process.send_signal(signal.SIGTERM)
            assert states.recv(256) == b"STOPPING=1"
            reader.join(PATIENCE_S)
            assert streamed and streamed[0].endswith(b"data: [DONE]\n\n"), "the running answer came to its end"
            assert running.end() == 0
            assert not [line for line in running.lines if "Traceback" in line]


def test_address_for_others_makes_a_key_and_asks_for_it(tiny_gguf: Path, body: dict[str, Any]) -> None:
    with serve(str(tiny_gguf), "--host", "0.0.0.0", "--ctx", "256", "--in-process") as running:
        key = running.wait_for(r"API key .*: (sk-\S+)")
        port = running.wait_for(r"http://\S+:(\d+)/v1")
        url = f"http://127.0.0.1:{port}/v1"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(url, body)
        assert post(url, body, key)
        running.process.send_signal(signal.SIGINT)
        assert running.end() == 130
        assert sum(key in line for line in running.lines) == 1


def test_taken_port_and_unknown_family_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    from edge_specquant.cli.main import main

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for arguments in (["serve", "--port", str(port)], ["serve", "no-such-family", "--port", "0"]):
            with pytest.raises(SystemExit) as end:
                main(arguments)
            assert end.value.code == 1
            message = capsys.readouterr().err.strip()
            assert message.startswith("error: ") and "\n" not in message


def test_help_names_every_flag() -> None:
    command = root.get_command(root.make_context("x", ["serve", "--help"], resilient_parsing=True), "serve")
    assert command is not None
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def test_engine_that_dies_fails_its_request_and_not_the_next(tiny_gguf: Path) -> None:
    runtime = Runtime.process(tiny_gguf, EngineOptions(n_ctx=2048))
    with serving(runtime) as served:
        body = {"model": f"{tiny_gguf.stem}:f16", "prompt": "ab", "max_tokens": 4, "seed": 1}
        assert served.post("/v1/completions", body)[0] == 200
        long = {**body, "max_tokens": 2000, "min_tokens": 2000, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(long), {"Content-Type": "application/json"})
            response = connection.getresponse()
            for _ in range(6):
                response.readline()
            pid = runtime.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            last = response.read().decode().strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "interrupted", "and no [DONE]"
        status, answer, _ = served.post("/v1/completions", body)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 4)
        assert runtime.status().n_restarts == 1
        pid = runtime.status().pid
        assert pid is not None and served.get("/health")[0] == 200
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: served.get("/health")[0] == 503)  # health is the engine's
        assert eventually(lambda: served.get("/health")[0] == 200)  # and asking for it brings the engine back
        assert runtime.status().pid not in (None, pid)
