"""Servers in child processes: llama.cpp's of the xllamacpp package, and our own `serve`. Two engines in one process
would share globals.

Takes settings, gives a URL on 127.0.0.1 while open. Knows nothing of prompts.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from ...errors import EngineError, EngineMissingError
from ...extras import pip_install

START_TIMEOUT_S = 180.0
CHILD = "edge_specquant.bench.peers.peer_child"
_URL = re.compile(r"http://[\w.\[\]:-]+")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Files and sizes, as this package uses them for its own runs. n_ctx: tokens of each of n_parallel replies."""

    model: Path
    draft: Path | None = None
    n_draft: int = 3
    n_ctx: int = 4096
    n_parallel: int = 1
    n_threads: int = 0
    n_gpu_layers: int = 0
    use_extra_bufts: bool = True

    def as_json(self) -> str:
        """For the child's command line."""
        return json.dumps(
            {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        )


class ServerProcess:
    """A running server: a command that prints its URL.

    ends_with_input: on standard output, and it ends when its standard input closes; else on standard error too, and it
    is asked to terminate. Raises EngineError when it does not start.
    """

    def __init__(self, command: Sequence[str], name: str, *, ends_with_input: bool = True) -> None:
        self._command = list(command)
        self._name = name
        self._ends_with_input = ends_with_input
        self.url = ""

    def __enter__(self) -> ServerProcess:
        errors = subprocess.DEVNULL if self._ends_with_input else subprocess.STDOUT
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(lines,), name="peer", daemon=True)
        self._reader.start()
        try:
            self.url = lines.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            self.url = ""
        if not self.url:
            self.close()
            raise EngineError(f"{self._name} did not start; does the model load there?")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child, and kills it when asking is not enough."""
        if self._process.stdin:
            self._process.stdin.close()
        if not self._ends_with_input:
            self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()

    def _read(self, lines: queue.SimpleQueue[str]) -> None:
        """The first URL it prints; "" when it ends without. What it prints later is read and dropped."""
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            found = _URL.search(line.decode("utf-8", "replace"))
            if found:
                lines.put(found[0])
        lines.put("")


def llama_server(settings: ServerSettings) -> ServerProcess:
    """llama.cpp's server. Raises EngineMissingError without xllamacpp."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise EngineMissingError(f"xllamacpp is not installed; {pip_install('peer')} --only-binary=:all:")
    command = [sys.executable, "-m", CHILD, settings.as_json()]
    return ServerProcess(command, f"llama.cpp's server on {settings.model.name}")


def our_server(family: str, *, n_ctx: int, n_parallel: int, n_threads: int, n_gpu_layers: int | None) -> ServerProcess:
    """`edge-specquant serve FAMILY`."""
    sizes = {"ctx": n_ctx, "parallel": n_parallel, "queue": 4 * n_parallel, "threads": n_threads}
    flags = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    if n_gpu_layers is not None:
        flags += ["--gpu-layers", str(n_gpu_layers)]
    command = [sys.executable, "-m", "edge_specquant", "serve", family, "--port", "0", *flags]
    return ServerProcess(command, f"our server on {family}", ends_with_input=False)
