"""One child process: started, spoken to, watched, ended. Its death is reported once, whatever the cause.

A thread starts the child, reads its frames to their end and reports how it died; another looks for signs of life while
somebody waits. Knows no requests.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..logs import engine_log_path, logger
from .opening import Opening
from .wire import FrameReader, FrameWriter, Message

_LOOK_S = 0.1
_SILENCE_S = 0.8  # without a beat (one every 0.2 s) for so long, the user is told
_EXIT_S = 2.0

COMMAND = (sys.executable, "-m", "edge_specquant.runtime.process.child")


@dataclass(frozen=True, slots=True)
class Patience:
    """hang_s: silence after which the child is ended; load_s: the same while it loads, when a busy machine's disk and
    memory can hold all its threads. stall_s: time without a step or CPU time being spent.

    stall_s is longer than the engine's self-test may take in the child's own children, whose time is not seen.
    """

    hang_s: float = 10.0
    load_s: float = 120.0
    stall_s: float = 400.0
    start_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Callbacks:
    """on_frame(messages), on_death(status, hung) and on_silence(silent) are called from threads of the process."""

    on_frame: Callable[[list[Message]], None]
    on_death: Callable[[int, str | None], None]
    on_silence: Callable[[bool], None]


class EngineProcess:
    """A running child. Raises OSError when it cannot be started."""

    def __init__(
        self, opening: Opening, callbacks: Callbacks, patience: Patience, command: Sequence[str] = COMMAND
    ) -> None:
        self._opening = opening
        self._callbacks = callbacks
        self._patience = patience
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: FrameWriter | None = None
        self._hung: str | None = None
        self._started = threading.Event()
        self._ended = threading.Event()
        self._refusal: OSError | None = None
        self.loads = True  # nothing that is waited for has made a step
        self.waited_for = False  # set while somebody waits for an answer: only then silence counts
        self._last_frame = self._last_step = time.monotonic()
        self._heard = False
        self._progress = (0, 0.0)
        # The thread that starts the child must live as long as it: Linux ends the child with its parent's *thread*.
        threading.Thread(target=self._run, name="engine-process", daemon=True).start()
        self._started.wait()
        if self._refusal is not None:
            raise self._refusal

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """False once its death was reported."""
        return not self._ended.is_set()

    def send(self, *message: object) -> None:
        """Sends one message; to a dead child, nothing: its death is reported elsewhere."""
        assert self._writer is not None
        with contextlib.suppress(OSError):
            self._writer.write(message)

    def end(self, why: str) -> None:
        """Kills a child that does not answer; `why` becomes part of its death."""
        self._hung = why
        assert self._process is not None
        logger.warning("ending the engine's process %d: it %s", self._process.pid, why)
        self._process.kill()

    def close(self, grace_s: float) -> None:
        """Asks it to finish, waits so long, then kills; returns when it is gone."""
        assert self._process is not None and self._writer is not None
        self.send("close", None)
        if not self._ended.wait(grace_s):
            self._process.kill()
            self._ended.wait()

    # -- threads ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            process = self._start()
        except OSError as error:
            self._refusal = error
            self._ended.set()
            self._started.set()
            return
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._writer = FrameWriter(os.dup(process.stdin.fileno()))
        frames = FrameReader(os.dup(process.stdout.fileno()))
        process.stdin.close()
        process.stdout.close()
        self._started.set()
        self.send("open", self._opening)
        threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()
        try:
            while True:
                self._take(frames.read())
        except (EOFError, OSError):
            frames.close()
        except Exception:  # bytes that are no frame: a child that writes them is as good as dead
            logger.exception("the engine's process %d sent what cannot be read", process.pid)
            frames.close()
            process.kill()
        status = self._reap(process)
        self._writer.close()
        logger.info("the engine's process %d ended with status %d", process.pid, status)
        self._ended.set()
        self._callbacks.on_death(status, self._hung)

    def _start(self) -> subprocess.Popen[bytes]:
        package_parent = str(Path(__file__).resolve().parents[3])
        paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
        flags = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        log = _open_log(engine_log_path())
        try:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if log is None else log,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"},
                creationflags=flags,
            )
        finally:
            if log is not None:
                os.close(log)

    def _take(self, messages: list[Message]) -> None:
        now = time.monotonic()
        self._last_frame = now
        if not self._heard:
            self._heard, self._last_step = True, now
        for message in messages:
            if message[0] == "beat":
                n_steps, cpu_s = message[1:]
                if n_steps != self._progress[0] or cpu_s > self._progress[1] + 0.05:
                    self._progress, self._last_step = (n_steps, cpu_s), now
        self._callbacks.on_frame(messages)

    def _watch(self) -> None:
        """Looks ten times a second; a look that comes late itself (a suspended machine) proves nothing."""
        looked, told = time.monotonic(), False
        while not self._ended.wait(_LOOK_S):
            now = time.monotonic()
            if not self.waited_for or now - looked > _SILENCE_S:
                self._last_frame = self._last_step = now
            looked = now
            silent_s, still_s = now - self._last_frame, now - self._last_step
            if silent_s > self._most_silence_s:
                self.end(f"gave no sign of life for {silent_s:.0f} s")
                return
            if self._heard and still_s > self._patience.stall_s:
                self.end(f"made no progress for {still_s:.0f} s")
                return
            if self._heard and told != (silent_s > _SILENCE_S):
                told = not told
                self._callbacks.on_silence(told)

    @property
    def _most_silence_s(self) -> float:
        patience = self._patience
        if not self._heard:
            return patience.start_s
        return max(patience.hang_s, patience.load_s) if self.loads else patience.hang_s

    def _reap(self, process: subprocess.Popen[bytes]) -> int:
        """The exit status of a child whose pipe ended."""
        try:
            return process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            process.kill()
            return process.wait()


def _open_log(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return None
