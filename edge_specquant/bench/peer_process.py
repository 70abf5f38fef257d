"""llama.cpp's server of the xllamacpp package, in a child process: two engines in one process would share globals.

Takes settings, gives a URL on 127.0.0.1 while open. Knows nothing of prompts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from ..errors import EngineError, EngineMissingError

START_TIMEOUT_S = 180.0
CHILD = "edge_specquant.bench.peer_child"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Files and sizes, as this package uses them for its own runs."""

    model: Path
    draft: Path | None = None
    n_draft: int = 3
    n_ctx: int = 4096
    n_threads: int = 0
    n_gpu_layers: int = 0
    use_extra_bufts: bool = True

    def as_json(self) -> str:
        """For the child's command line."""
        return json.dumps(
            {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        )


class ServerProcess:
    """A running server. Raises EngineMissingError without xllamacpp, EngineError when it does not start."""

    def __init__(self, settings: ServerSettings) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise EngineMissingError(
                'xllamacpp is not installed; pip install --only-binary=:all: "edge-specquant[peer]"'
            )
        self._settings = settings
        self.url = ""

    def __enter__(self) -> ServerProcess:
        command = [sys.executable, "-m", CHILD, self._settings.as_json()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(lines,), name="peer", daemon=True)
        self._reader.start()
        try:
            self.url = lines.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            self.url = ""
        if not self.url:
            self.close()
            raise EngineError(f"llama.cpp's server did not start on {self._settings.model.name}; does it load there?")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child: its standard input closes, and it is killed when that is not enough."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()

    def _read(self, lines: queue.SimpleQueue[str]) -> None:
        """The first line that is a URL; an empty one when the child ends without."""
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("http://"):
                lines.put(text)
        lines.put("")
