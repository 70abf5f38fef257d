"""The bridge: one thread that owns the runtime, runs jobs in order, and posts news; the screen never waits for it.

Takes an opener (how to get a runtime for a family name) and a function that posts messages. Heavy imports happen in
the thread. Knows nothing of widgets.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import EdgeSpecQuantError, UsageError
from .news import Arrived, Counted, Ended, EngineNews, FamilyFacts, Loading, NoFamily, Prefilling, Ready, ReplyEnd
from .news import Trouble as TroubleNews

if TYPE_CHECKING:
    from ..engine.events import TokenEvent
    from ..request import Request
    from ..runtime import EngineOptions, Runtime

Progress = Callable[[str, int, int], None]
Post = Callable[[EngineNews], object]


Opener = Callable[[str, bool, Progress], "Runtime"]
"""(family or source, whether siblings are made of it first, progress) -> a runtime."""


class CancelledOpening(EdgeSpecQuantError):
    """The person stopped a conversion; raised out of its progress callback."""


class Engine:
    """Jobs in, news out. `cancel` and `close` may be called from any thread at any time."""

    def __init__(self, opener: Opener, post: Post) -> None:
        self._opener, self._post = opener, post
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._events: list[TokenEvent] = []
        self._lock = threading.Lock()
        self._announced = False
        self._stopping = threading.Event()
        self._wanted_ticket = 0
        self._runtime: Runtime | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # From the screen

    def open(self, family: str, *, convert: bool = False) -> None:
        """Opens a family in place of the one at hand, and loads its models; `convert` makes it of a source first."""
        self._stopping.clear()
        self._jobs.put(lambda: self._open(family, convert))

    def reply(self, ticket: int, request: Request) -> None:
        """Starts a reply; its news carry the ticket. A later ticket makes earlier ones end at once."""
        self._wanted_ticket = ticket
        self._jobs.put(lambda: self._reply(ticket, request))

    def count(self, key: str, text: str) -> None:
        """Counts the tokens of a text."""
        self._jobs.put(lambda: self._count(key, text))

    def take_events(self) -> list[TokenEvent]:
        """The events that came since the last call."""
        with self._lock:
            events, self._events = self._events, []
            self._announced = False
        return events

    def cancel(self) -> None:
        """Stops the running reply within a batch, or a conversion at its next step."""
        self._stopping.set()
        self._wanted_ticket = -1
        if self._runtime is not None:
            self._runtime.cancel()

    def close(self, patience_s: float = 0.7) -> None:
        """Stops everything; gives the engine a moment to free its memory, then leaves it to the system."""
        self.cancel()
        self._jobs.put(None)
        self._thread.join(patience_s)

    # In the thread

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except EdgeSpecQuantError as error:
                self._post(TroubleNews(str(error)))
            except Exception as error:  # a bug must become a banner, not a frozen screen
                logging.getLogger(__name__).exception("the engine thread")
                self._post(TroubleNews(f"internal error: {type(error).__name__}: {error}"))
        self._drop()

    def _open(self, family: str, convert: bool) -> None:
        self._drop()
        self._post(Loading(f"opening {family}"))
        try:
            self._runtime = self._opener(family, convert, self._progress)
        except CancelledOpening as error:
            self._post(NoFamily(family, str(error), stopped=True))
            return
        except EdgeSpecQuantError as error:
            self._post(NoFamily(family, str(error)))
            return
        self._post(Loading("loading the models"))
        self._warm_up(self._runtime)
        self._post(Ready(facts_of(self._runtime)))

    def _progress(self, step: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise CancelledOpening("stopped; what was finished is kept, and the rest goes on next time")
        self._post(Loading(step, done, total))

    def _warm_up(self, runtime: Runtime) -> None:
        from ..request import Request

        for _ in runtime.generate(Request(prompt="Hello", max_tokens=0)):  # loads the models, decodes nothing
            pass

    def _reply(self, ticket: int, request: Request) -> None:
        siblings = ("", "")
        try:
            if self._runtime is None:
                raise UsageError("no model is loaded; choose one first")
            siblings = self._runtime.siblings(request)
            end = self._stream(self._runtime, ticket, request, siblings)
        except EdgeSpecQuantError as error:
            end = ReplyEnd(ticket, "error", None, *siblings, error=str(error))
        except Exception as error:
            logging.getLogger(__name__).exception("a reply")
            end = ReplyEnd(ticket, "error", None, *siblings, error=f"internal error: {type(error).__name__}: {error}")
        self._post(Ended(end))

    def _stream(self, runtime: Runtime, ticket: int, request: Request, siblings: tuple[str, str]) -> ReplyEnd:
        if ticket != self._wanted_ticket:
            return ReplyEnd(ticket, "cancelled", None, *siblings)
        last = None
        for event in runtime.generate(request, lambda done, total: self._prefilled(runtime, ticket, done, total)):
            last = event
            self._buffer(ticket, event)
            if ticket != self._wanted_ticket:
                runtime.cancel()
        if last is None or last.finish_reason is None:
            return ReplyEnd(ticket, "interrupted", None, *siblings, error="the engine ended without a word")
        notices = tuple(dict.fromkeys([*([last.note] if last.note else []), *runtime.notices]))
        reasons: tuple[str, ...] = ()
        if last.route is not None:
            siblings = (last.route["target"], last.route["draft"])
            reasons = (f"policy {last.route['policy']}", *last.route["reasons"], last.route["nearest_flip"])
        return ReplyEnd(ticket, last.finish_reason, last.stats, *siblings, notices=notices, reasons=reasons)

    def _prefilled(self, runtime: Runtime, ticket: int, done: int, total: int) -> None:
        self._post(Prefilling(ticket, done, total))
        if ticket != self._wanted_ticket:
            runtime.cancel()

    def _buffer(self, ticket: int, event: TokenEvent) -> None:
        with self._lock:
            self._events.append(event)
            announce, self._announced = not self._announced, True
        if announce:
            self._post(Arrived(ticket))

    def _count(self, key: str, text: str) -> None:
        if self._runtime is not None:
            from ..request import Request

            n_tokens = len(self._runtime.tokens(Request(prompt=text, raw=True))) if text else 0
            self._post(Counted(key, n_tokens))

    def _drop(self) -> None:
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None


def runtime_opener(options: Callable[[], EngineOptions]) -> Opener:
    """Opens families with the package's own runtime; its one line says in which process the engine lives."""

    def open_family(source: str, convert: bool, progress: Progress) -> Runtime:
        from ..runtime import Runtime

        return Runtime.process(_converted(source, progress) if convert else source, options(), progress)

    return open_family


def facts_of(runtime: Runtime) -> FamilyFacts:
    """What the screen shows of a runtime whose models are in memory."""
    from ..request import Request

    target, draft = runtime.siblings(Request(prompt="Hello"))
    status = runtime.status()
    siblings = tuple((variant.name, variant.n_bytes) for variant in runtime.family.variants.values())
    n_ctx = next((resident.n_ctx for resident in status.residents if resident.name == target), None)
    return FamilyFacts(runtime.family.name, siblings, target, draft, n_ctx or None, status.notices)


def _converted(source: str, progress: Progress) -> str:
    """Makes a family of a checkpoint, and gives its name."""
    from ..gguf.convert.convert import convert, open_source, plan_conversion

    opened = open_source(source, say=lambda text: progress(text, 0, 0))
    return convert(plan_conversion(opened, None), progress=progress).name
