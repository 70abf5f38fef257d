"""Who is answered when: threads ask the runtime, in order of arrival, from a queue that is bounded.

Takes asks, gives a `Reply`: an async iterator of (choice, event). A caller that leaves cancels its own replies and no
others. There are as many threads as the runtime writes replies at once; how it does that is its own affair.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.events import TokenEvent
from ..errors import EdgeSpecQuantError, TemplateError
from ..request import Request
from ..runtime import Reply as Events
from ..runtime import Runtime
from .errors import ApiError, as_api_error, server_error
from .metrics import Metrics
from .options import Live
from .requests.translate import Ask

log = logging.getLogger("edge_specquant.server")


@dataclass(frozen=True, slots=True)
class Started:
    """A choice's turn has come: who writes and who drafts."""

    target: str
    draft: str


Item = tuple[int, TokenEvent | Started] | ApiError


@dataclass(slots=True, eq=False)
class _Job:
    """One ask in the queue."""

    ask: Ask
    index: int
    reply: Reply
    queued_at: float
    events: Events | None = None


class Reply:
    """Events of all choices of one caller, as they come; ends when every choice has ended. For one event loop."""

    def __init__(self, engine: Engine, n_choices: int, timeout_s: float) -> None:
        self.gone = False
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._n_open = n_choices
        message = f"no whole answer within {timeout_s:g} s; ask for fewer tokens or raise server.timeout_s"
        late = server_error(message, 504, "timeout")
        self._timer = self._loop.call_later(timeout_s, self._items.put_nowait, late)

    def __aiter__(self) -> Reply:
        return self

    async def __anext__(self) -> tuple[int, TokenEvent | Started]:
        """Raises ApiError when a choice fails or the time is up, after cancelling the others."""
        if self._n_open == 0:
            self._timer.cancel()
            raise StopAsyncIteration
        item = await self._items.get()
        if isinstance(item, ApiError):
            self.cancel()
            raise item
        if isinstance(item[1], TokenEvent) and item[1].finish_reason is not None:
            self._n_open -= 1
        return item

    def cancel(self) -> None:
        """Leaves: choices in the queue are dropped, a running one stops within a batch. After the end: nothing."""
        self._timer.cancel()
        if self._n_open:
            self._n_open = 0
            self._engine.drop(self)

    def put(self, item: Item) -> None:
        """From the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the event loop is closed: nobody listens any more
            self.gone = True


class Engine:
    """The queue and its threads. `metrics` is told of everything that ends."""

    def __init__(self, runtime: Runtime, live: Live, metrics: Metrics, n_threads: int = 1) -> None:
        self._runtime = runtime
        self._live = live
        self._metrics = metrics
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._closing = False
        self._mean_s = 1.0
        self._threads = [threading.Thread(target=self._work, name=f"reply-{i}", daemon=True) for i in range(n_threads)]
        metrics.watch(lambda: self.n_waiting, lambda: self.n_running)

    def start(self) -> None:
        """Begins to answer."""
        for thread in self._threads:
            thread.start()

    @property
    def n_waiting(self) -> int:
        """Choices in the queue."""
        return len(self._waiting)

    @property
    def n_running(self) -> int:
        """Choices being written."""
        return len(self._running)

    @property
    def state(self) -> str:
        """ok, draining, starting (the engine's process was gone and comes again), or dead. May start a process."""
        if self._closing:
            return "draining"
        if not all(thread.is_alive() for thread in self._threads):
            return "dead"
        try:
            return "ok" if self._runtime.is_ready() else "starting"
        except EdgeSpecQuantError:
            log.exception("the engine cannot be started")
            return "dead"

    def submit(self, asks: Sequence[Ask]) -> Reply:
        """Queues all or none. Raises ApiError: 429 when the queue is full, 503 when the server is closing."""
        options = self._live.options
        if not 0 < len(asks) <= min(options.max_choices, options.queue):
            limit = min(options.max_choices, options.queue)
            raise ApiError(400, f"{len(asks)} choices are asked for; at most {limit} are made at once", param="n")
        with self._changed:
            if self._closing:
                raise server_error("the server is closing", 503, "closing")
            if len(self._waiting) + len(asks) > options.queue:
                self._metrics.refused()
                raise self._full()
            reply = Reply(self, len(asks), options.timeout_s)
            now = time.perf_counter()
            self._waiting.extend(_Job(ask, i, reply, now) for i, ask in enumerate(asks))
            self._changed.notify()
        return reply

    def drop(self, reply: Reply) -> None:
        """Forgets a caller; from any thread."""
        with self._changed:
            reply.gone = True
            self._waiting = deque(job for job in self._waiting if job.reply is not reply)
            for job in self._running:
                if job.reply is reply and job.events is not None:
                    job.events.cancel()

    def close(self, drain_s: float = 0.0) -> None:
        """Takes nothing more, lets what is queued end within drain_s, then cancels it. Waits for the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        started = [thread for thread in self._threads if thread.ident is not None]
        deadline = time.monotonic() + drain_s
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            left = {job.reply for job in (*self._waiting, *self._running)}
        for reply in left:
            reply.put(server_error("the server is closing", 503, "closing"))
            self.drop(reply)
        for thread in started:
            thread.join()

    def _full(self) -> ApiError:
        seconds = max(1, math.ceil(self._mean_s * (self.n_waiting + 1) / len(self._threads)))
        return ApiError(
            429,
            f"{self.n_waiting} requests are waiting; try again in {seconds} s",
            kind="rate_limit_error",
            code="queue_full",
            headers={"Retry-After": str(seconds)},
        )

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._answer(job)

    def _next(self) -> _Job | None:
        """Waits for a job and makes it a running one; None when closing and nothing is left."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            job = self._waiting.popleft()
            self._running.append(job)
            return job

    def _answer(self, job: _Job) -> None:
        begun = time.perf_counter()
        try:
            self._run(job, job.ask.request, job.ask.fallback)
        except Exception as error:  # a reply that fails must not take the others with it; the caller is told
            self._metrics.failed()
            job.reply.put(as_api_error(error))
        finally:
            with self._lock:
                self._running.remove(job)
            self._mean_s += 0.2 * (time.perf_counter() - begun - self._mean_s)

    def _run(self, job: _Job, request: Request, fallback: Request | None) -> None:
        job.reply.put((job.index, Started(*self._runtime.siblings(request))))
        try:
            self._stream(job, request)
        except TemplateError:
            if fallback is None:
                raise
            self._stream(job, fallback)

    def _stream(self, job: _Job, request: Request) -> None:
        """Passes events on until the end or until the caller is gone."""
        with self._runtime.generate(request) as events:
            with self._lock:
                job.events = events  # from here on `drop` stops it
                if job.reply.gone:
                    return
            for event in events:
                if event.finish_reason is not None:
                    self._metrics.ended(event, time.perf_counter() - job.queued_at)
                if job.reply.gone:
                    return
                job.reply.put((job.index, event))
