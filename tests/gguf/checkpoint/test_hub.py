"""The hub, played by a local server: only needed files, broken downloads go on, the cache serves offline (H1)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from tiny_checkpoints import write_checkpoint

from edge_specquant.gguf.checkpoint.hub import parse_hub_id

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "some-org/tiny-model"


@dataclass
class Hub:
    """A server for one repository's folder. `cut` names a file whose first download breaks off in the middle."""

    folder: Path
    cut: str | None = None
    asked: list[str] = field(default_factory=list)
    fetched: list[tuple[str, str | None]] = field(default_factory=list)
    port: int = 0


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            return

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = unquote(urlparse(self.path).path)
            hub.asked.append(path)
            if path.startswith(f"/api/models/{REPO}"):
                self._api(path)
            elif f"/{REPO}/resolve/" in path:
                self._file(path.split("/resolve/")[1].split("/", 1)[1], with_body)
            else:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

        def _api(self, path: str) -> None:
            if "/revision/" in path and not path.endswith(("/main", f"/{COMMIT}", "/v1")):
                self._json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
                return
            names = sorted(file.name for file in hub.folder.iterdir())
            if "/tree/" in path:
                self._json([self._entry(name) for name in names], 200, {})
                return
            siblings = [{"rfilename": name} for name in names]
            self._json({"_id": "1", "id": REPO, "modelId": REPO, "sha": COMMIT, "siblings": siblings}, 200, {})

        def _entry(self, name: str) -> dict[str, Any]:
            data = (hub.folder / name).read_bytes()
            return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

        def _file(self, name: str, with_body: bool) -> None:
            if not (hub.folder / name).is_file():
                self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
                return
            data = (hub.folder / name).read_bytes()
            requested = self.headers.get("Range")
            start = int(requested.removeprefix("bytes=").split("-")[0]) if requested else 0
            body = data[start:]
            self.send_response(206 if requested else 200)
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(body)))
            if requested:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            if not with_body:
                return
            hub.fetched.append((name, requested))
            if name == hub.cut and start == 0:
                hub.cut = None
                self.wfile.write(body[: 3 * len(body) // 4])
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(body)

        def _json(self, document: Any, status: int, headers: dict[str, str]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    return Handler


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "remote"
    # The client keeps what it has in steps of 10 MiB: the first shard is larger, so that there is something to keep.
    write_checkpoint(folder, "qwen2", n_shards=2, changes={"vocab_size": 60_000})
    (folder / "README.md").write_text("not needed")
    (folder / "pytorch_model.bin").write_bytes(b"never fetched")
    (folder / "consolidated.safetensors").write_bytes(b"never fetched")
    hub = Hub(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


def convert(hub: Hub, tmp_path: Path, *arguments: str, port: int | None = None, **variables: str) -> Any:
    environment = {
        **os.environ,
        "EDGE_SPECQUANT_HOME": str(tmp_path / "home"),
        "HF_HOME": str(tmp_path / "hub cache"),
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.port if port is None else port}",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **variables,
    }
    environment.pop("HF_TOKEN", None)
    return subprocess.run(
        [sys.executable, "-c", "from edge_specquant.cli import main; main()", "convert", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_hub_id_becomes_a_family_from_the_needed_files_only(hub: Hub, tmp_path: Path) -> None:
    done = convert(hub, tmp_path, REPO, "--variants", "q8", "--no-quality", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["name"] == "tiny-model"
    assert document["source"]["kind"] == "hub"
    assert document["source"]["revision"] == COMMIT
    fetched = {name for name, _ in hub.fetched}
    assert {"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"} <= fetched
    assert fetched.isdisjoint({"README.md", "pytorch_model.bin", "consolidated.safetensors"})

    # Offline, asked for or not, the cache serves; the second time the user is told.
    offline = convert(hub, tmp_path, REPO, "--name", "b", "--variants", "q8", "--no-quality", HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr
    unreachable = convert(hub, tmp_path, REPO, "--name", "c", "--variants", "q8", "--no-quality", "--json", port=9)
    assert unreachable.returncode == 0, unreachable.stderr
    assert "used the cached copy" in " ".join(json.loads(unreachable.stdout)["notes"])


def test_a_connection_cut_mid_file_goes_on_where_it_broke(hub: Hub, tmp_path: Path) -> None:
    hub.cut = "model-00001-of-00002.safetensors"
    done = convert(hub, tmp_path, REPO, "--variants", "q8", "--no-quality")
    if done.returncode != 0:  # a client that gives up: the next run must go on
        assert "run the command again" in done.stderr
        done = convert(hub, tmp_path, REPO, "--variants", "q8", "--no-quality")
    assert done.returncode == 0, done.stderr
    ranges = [requested for name, requested in hub.fetched if name == "model-00001-of-00002.safetensors"]
    assert ranges[0] is None
    assert any(requested and requested != "bytes=0-" for requested in ranges[1:])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("some-org/absent",), "the hub has no some-org/absent"),
        ((f"{REPO}@nowhere",), "has no revision 'nowhere'"),
    ],
)
def test_what_the_hub_does_not_have_is_one_sentence(
    hub: Hub, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = convert(hub, tmp_path, *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_network_and_cache(hub: Hub, tmp_path: Path) -> None:
    done = convert(hub, tmp_path, REPO, port=9)
    assert done.returncode == 1
    assert "is not in the cache, and the hub cannot be reached" in done.stderr
    offline = convert(hub, tmp_path, REPO, HF_HUB_OFFLINE="1")
    assert offline.returncode == 1
    assert "offline mode" in offline.stderr


def test_a_repository_of_pickles_is_refused(hub: Hub, tmp_path: Path) -> None:
    for path in hub.folder.glob("*.safetensors*"):
        path.unlink()
    done = convert(hub, tmp_path, REPO)
    assert done.returncode == 1
    assert "pickle only (pytorch_model.bin)" in done.stderr
    assert "pytorch_model.bin" not in {name for name, _ in hub.fetched}


def test_a_local_path_opens_no_socket(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "org" / "tiny", "qwen2")
    program = (
        "import socket\n"
        "def refuse(*a, **k): raise SystemExit('a socket was opened')\n"
        "socket.socket = refuse\n"
        "socket.create_connection = socket.getaddrinfo = refuse\n"
        "from edge_specquant.cli import main\n"
        "main(['convert', 'org/tiny', '--variants', 'q8', '--no-quality'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={
            **os.environ,
            "EDGE_SPECQUANT_HOME": str(tmp_path / "home"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tiny: qwen2" in done.stdout


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("org/name", ("org/name", None)),
        ("org/name@v1.0", ("org/name", "v1.0")),
        ("org/name@refs/pr/3", ("org/name", "refs/pr/3")),
        ("name", None),
        ("../name", None),
        ("org/../name", None),
        ("/org/name", None),
        ("org/name.gguf", None),
        ("a/b/c", None),
        ("org/na me", None),
    ],
)
def test_hub_ids(text: str, parsed: tuple[str, str | None] | None) -> None:
    assert parse_hub_id(text) == parsed
