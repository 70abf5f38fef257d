"""The engine's process: `python -m edge_specquant.runtime.process.child`, frames on stdin and stdout (`wire.py`).

The main thread (and with n_parallel others like it) answers requests in order; one thread reads frames, one writes
them, one sends signs of life. It ends with its parent, however that ends. Standard output and error go where the parent
pointed stderr: the log.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...engine.events import TokenEvent
from ...errors import EdgeSpecQuantError
from ..logs import ENGINE_LOG, log_here, logger
from ..reply import Reply
from .opening import Opening
from .wire import FrameReader, FrameWriter, Message, Outbox

if TYPE_CHECKING:
    from ...request import Request
    from ..local import LocalEngine

BEAT_S = 0.2
_IDLE_LOOK_S = 2.0
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serves one parent until it says close or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to us too; the parent decides
    frames, writer = _take_pipes()
    faulthandler.enable()
    ((_, opening),) = frames.read()
    _die_with(opening.parent_pid)
    outbox = Outbox(writer)
    beats = _Beats(outbox, opening.parent_pid)
    with beats:  # the imports and the opening are work too
        notice = log_here(ENGINE_LOG, native=True, debug=opening.options.debug)
        try:
            engine = _open_engine(opening)
        except Exception as error:
            logger.exception("the engine could not be opened")
            outbox.put(("refused", f"{type(error).__name__}: {error}"))
            outbox.close()
            return 1
    engine.planned.on_change = lambda plan: outbox.put(("planned", plan))
    serving = _Serving(engine, outbox, beats)
    outbox.put(("ready", os.getpid(), notice))
    threading.Thread(target=_read, args=(frames, serving), name="frames", daemon=True).start()
    serving.run()
    outbox.close()
    return 0


def _open_engine(opening: Opening) -> LocalEngine:
    from ...gguf.family.family import Family
    from ..local import LocalEngine

    return LocalEngine(Family.open(opening.family), opening.options)


class _Serving:
    """The engine and the requests in line for it."""

    def __init__(self, engine: LocalEngine, outbox: Outbox, beats: _Beats) -> None:
        self._engine = engine
        self._outbox = outbox
        self._beats = beats
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._replies: dict[int, Reply] = {}

    def take(self, message: Message) -> None:
        """Obeys one message; what takes time goes in line. Called by the thread that reads frames."""
        kind, number = message[0], message[1]
        if kind == "generate":
            request = message[2]
            reply = self._engine.generate(request, lambda done, total: self._prefilled(number, done, total))
            self._replies[number] = reply
            self._jobs.put(lambda: self._guarded(number, lambda: self._stream(number, reply)))
        elif kind == "cancel":
            for known, reply in tuple(self._replies.items()):
                if number in (None, known):
                    reply.cancel()
        elif kind == "tokens":
            request = message[2]
            self._jobs.put(lambda: self._guarded(number, lambda: self._answer(number, request)))
        elif kind == "siblings":
            request = message[2]
            self._guarded(number, lambda: self._put("answer", number, self._engine.siblings(request)))
        elif kind == "status":
            self._put("answer", number, (self._engine.status(), self._jobs.qsize()))
        elif kind == "close":
            for reply in tuple(self._replies.values()):
                reply.cancel()
            for _ in range(self._engine.options.n_parallel):
                self._jobs.put(None)

    def run(self) -> None:
        """Answers until closed."""
        others = [
            threading.Thread(target=self._work, name=f"engine-{number}", daemon=True)
            for number in range(1, self._engine.options.n_parallel)
        ]
        for other in others:
            other.start()
        self._work()
        for other in others:
            other.join()
        self._engine.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._beats:
                job()

    def _stream(self, number: int, reply: Reply) -> None:
        self._put("started", number)
        for event in reply:
            self._beats.n_steps += 1
            if event == TokenEvent(event.text, event.token_id, event.origin):  # the usual kind goes without its class
                self._put("token", number, event.text, event.token_id, event.origin)
            else:
                self._put("event", number, event)
        self._put("done", number, self._engine.notices)

    def _prefilled(self, number: int, done: int, total: int) -> None:
        self._beats.n_steps += 1
        self._put("prefill", number, done, total)

    def _answer(self, number: int, request: Request) -> None:
        self._put("answer", number, self._engine.tokens(request))

    def _guarded(self, number: int, job: Callable[[], None]) -> None:
        try:
            job()
        except EdgeSpecQuantError as error:
            self._put("failed", number, type(error).__name__, str(error))
        except Exception as error:
            logger.exception("a request failed in a way that is not foreseen")
            self._put("failed", number, "EngineError", f"the engine failed: {type(error).__name__}: {error}")
        finally:
            self._replies.pop(number, None)

    def _put(self, *message: object) -> None:
        self._outbox.put(message)


class _Beats:
    """Signs of life while there is work: steps done, and seconds of CPU used, by which a standstill can be told."""

    def __init__(self, outbox: Outbox, parent_pid: int) -> None:
        self.n_steps = 0
        self._outbox = outbox
        self._parent_pid = parent_pid
        self._busy = threading.Event()
        self._lock = threading.Lock()
        self._n_busy = 0
        threading.Thread(target=self._run, name="beats", daemon=True).start()

    def __enter__(self) -> None:
        with self._lock:
            self._n_busy += 1
            self._busy.set()

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._n_busy -= 1
            if not self._n_busy:
                self._busy.clear()

    def _run(self) -> None:
        while True:
            if self._busy.wait(_IDLE_LOOK_S):
                self._outbox.put(("beat", self.n_steps, time.process_time()))
                time.sleep(BEAT_S)
            if os.name == "posix" and os.getppid() != self._parent_pid:
                os._exit(1)  # a pipe can outlive the parent: a process that it forked may hold it


def _read(frames: FrameReader, serving: _Serving) -> None:
    try:
        while True:
            for message in frames.read():
                serving.take(message)
    except EOFError:
        os._exit(1)  # the parent is gone, and the engine may be busy for long


def _take_pipes() -> tuple[FrameReader, FrameWriter]:
    """Keeps stdin and stdout for frames; whatever else prints goes to stderr, which is the log."""
    reader, writer = FrameReader(os.dup(0)), FrameWriter(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reader, writer


def _die_with(parent_pid: int) -> None:
    """Linux kills this process when its parent ends, even when it is stopped or stuck; elsewhere `_Beats` looks."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent_pid:  # it ended before we asked
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
