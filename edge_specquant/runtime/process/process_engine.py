"""The engine in a child process, with the interface of `LocalEngine`: what happens to the child happens to no one else.

A child that dies ends its reply as "interrupted", with the reason; the next reply gets a new child with safer settings.
Twice on one input is enough. Replies that only waited go to the new child unharmed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ... import errors
from ...engine.events import TokenEvent
from ...errors import EngineError, UsageError
from ...gguf.family.family import Family
from ...placement.plan.plan_types import PlacementPlan
from ...request import Request
from ..logs import engine_log_path, logger
from ..models.default_siblings import choose_siblings
from ..options import EngineOptions, OnPrefill
from ..reply import Events, Reply
from ..status import Status
from .child_handle import COMMAND, Callbacks, EngineProcess, Patience
from .death import Death, safer
from .opening import Opening
from .wire import Message

MAX_DEATHS = 2
_LOADING = "while loading the model"
_POLL_S = 0.2  # an endless wait cannot be interrupted on Windows
_STATUS_S = 1.0
_SIBLINGS_S = 30.0  # a child that starts imports first, and plans
_CLOSE_S, _CLOSE_WITH_FILES_S = 3.0, 30.0


@dataclass(eq=False, slots=True)
class _Call:
    """One thing asked of the child; the answers come through the mailbox, from the thread that reads the pipe."""

    number: int
    message: Message
    mailbox: queue.SimpleQueue[list[Message]] = field(default_factory=queue.SimpleQueue)
    is_started: bool = False
    is_cancelled: bool = False
    doing: str = _LOADING
    n_tokens: int = 0


class ProcessEngine:
    """A family in a child process. command and patience are for tests."""

    def __init__(
        self,
        family: Family,
        options: EngineOptions,
        *,
        command: Sequence[str] = COMMAND,
        patience: Patience | None = None,
    ) -> None:
        self.family = family
        self.options = options
        self.notices: list[str] = []
        self._command = command
        self._patience = patience or Patience()
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._child: EngineProcess | None = None
        self._calls: dict[int, _Call] = {}
        self._deaths: dict[str, int] = {}
        self._changes: list[str] = []
        self._n_started = 0
        self._is_ready = False
        self._refusal: str | None = None
        self._plan: PlacementPlan | None = None
        self._is_closed = False

    def start(self) -> None:
        """Starts the child if it is not running: its imports then overlap with what the front end does.

        Raises EngineError, UsageError once closed.
        """
        with self._lock:
            if self._is_closed:
                raise UsageError("this runtime is closed")
            if self._child is not None:
                return
            # A name is looked up again by the child; a folder or a file is what was opened here.
            place = self.family.folder if self.family.manifest else next(iter(self.family.variants.values())).path
            opening = Opening(str(place), self.options, os.getpid())
            callbacks = Callbacks(self._on_frame, self._on_death, self._on_silence)
            try:
                self._child = EngineProcess(opening, callbacks, self._patience, self._command)
            except OSError as error:
                raise EngineError(f"the engine's process cannot be started: {error}") from error
            self._n_started += 1

    def is_ready(self) -> bool:
        """Whether the child can answer now. One that is gone is started again, so that it soon can."""
        with self._lock:
            if self._is_closed:
                return False
            self.start()
            return self._is_ready

    def generate(self, request: Request, on_prefill: OnPrefill | None = None) -> Reply:
        """One reply; errors of our tree are raised by its first step."""
        call = _Call(next(self._numbers), ("generate", request))
        return Reply(self._events(call, request, on_prefill), lambda: self._cancel(call))

    def tokens(self, request: Request) -> list[int]:
        """The prompt's token ids; waits for its turn."""
        call = _Call(next(self._numbers), ("tokens", request))
        ids: list[int] = self._answer(call, None)
        return ids

    def siblings(self, request: Request) -> tuple[str, str]:
        """(target, draft) that would answer, by the child's plan; without one when it is silent or dead."""
        with self._lock:
            is_there = self._child is not None and not self._is_closed
        if is_there:
            try:
                target, draft = self._answer(_Call(next(self._numbers), ("siblings", request)), _SIBLINGS_S)
                return target, draft
            except EngineError as error:
                logger.warning("the plan is not known: %s", error)
        return choose_siblings(self.family, self.options, request)

    def cancel(self) -> None:
        """Cancels the reply being written and all that wait."""
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            self._cancel(call)

    def status(self) -> Status:
        """The child's status, or what is known without it when it is starting, silent or dead."""
        with self._lock:
            child = self._child
            calls = [call for call in self._calls.values() if call.message[0] == "generate"]
        known = Status(
            mode="process",
            family=self.family.name,
            pid=child.pid if child else None,
            busy=bool(calls),
            n_waiting=max(0, len(calls) - self.options.n_parallel),
            n_restarts=max(0, self._n_started - 1),
            notices=(*self.notices, *self._changes),
            log_path=str(engine_log_path()),
        )
        if child is None or self._is_closed:
            return known
        try:
            theirs, _ = self._answer(_Call(next(self._numbers), ("status",)), _STATUS_S)
        except EngineError:
            return known
        return replace(
            known,
            residents=theirs.residents,
            n_snapshots=theirs.n_snapshots,
            n_snapshot_bytes=theirs.n_snapshot_bytes,
            plan=theirs.plan,
            n_evicted=theirs.n_evicted,
            swap_s=theirs.swap_s,
        )

    def close(self) -> None:
        """Ends the child; twice is fine. With snapshots on disk it is given time to write them."""
        with self._lock:
            child, self._is_closed = self._child, True
        if child is not None:
            child.close(_CLOSE_WITH_FILES_S if self.options.snapshot_disk_bytes else _CLOSE_S)

    # -- the side of the caller -------------------------------------------------------------------------------------

    def _events(self, call: _Call, request: Request, on_prefill: OnPrefill | None) -> Events:
        key = _input_key(request)
        if self._deaths.get(key, 0) >= MAX_DEATHS:
            raise EngineError(
                f"the engine died {MAX_DEATHS} times on this input; it is not tried again. "
                f"Change the prompt or the settings; the log: {engine_log_path()}"
            )
        self._submit(call)
        is_finished = False
        try:
            while not is_finished:
                for message in self._receive(call):
                    kind = message[0]
                    if kind == "token":
                        call.n_tokens += 1
                        yield TokenEvent(message[2], message[3], message[4])
                    elif kind == "event":
                        call.n_tokens += message[2].token_id is not None
                        yield message[2]
                    elif kind == "prefill" and on_prefill:
                        on_prefill(message[2], message[3])
                    elif kind == "silence":
                        yield TokenEvent("", note=message[2])
                    elif kind == "died":
                        event = self._after_death(call, key, message[2], message[3])
                        is_finished = event.finish_reason is not None
                        yield event
                    elif kind == "failed":
                        raise _error(message[2], message[3])
                    elif kind == "done":
                        is_finished = True
                        self.notices = message[2]
                        self._deaths.pop(key, None)
        finally:
            self._release(call)

    def _after_death(self, call: _Call, key: str, death: Death, change: str) -> TokenEvent:
        """What the user is told; a reply that had not begun is asked for again, once."""
        n_deaths = self._deaths[key] = self._deaths.get(key, 0) + 1
        with_change = f" with {change}" if change else ""
        if call.is_cancelled:
            return TokenEvent("", finish_reason="cancelled", note=f"{death.sentence}.")
        if n_deaths >= MAX_DEATHS:
            note = f"{death.sentence}, again on this input; it is not tried a third time. The log: {engine_log_path()}"
            return TokenEvent("", finish_reason="interrupted", note=note)
        if not call.n_tokens:
            self._submit(call)
            return TokenEvent("", note=f"{death.sentence}; trying again{with_change}.")
        note = f"{death.sentence}; what was written is kept. It starts again{with_change} with the next reply."
        return TokenEvent("", finish_reason="interrupted", note=note)

    def _answer(self, call: _Call, timeout_s: float | None) -> Any:
        """The answer to a call that streams nothing. Raises EngineError when the child dies or the time is up."""
        self._submit(call)
        try:
            while True:
                for message in self._receive(call, timeout_s):
                    if message[0] == "answer":
                        return message[2]
                    if message[0] == "failed":
                        raise _error(message[2], message[3])
                    if message[0] == "died":
                        raise EngineError(f"{message[2].sentence}; the log: {engine_log_path()}")
        finally:
            self._release(call)

    def _submit(self, call: _Call) -> None:
        with self._lock:
            self.start()
            assert self._child is not None
            call.is_started, call.doing = False, _LOADING
            self._calls[call.number] = call
            self._child.loads = self._all_load()
            self._child.waited_for = True
            child = self._child
        child.send(call.message[0], call.number, *call.message[1:])
        if call.is_cancelled:
            child.send("cancel", call.number)

    def _receive(self, call: _Call, timeout_s: float | None = None) -> list[Message]:
        left_s = timeout_s
        while True:
            try:
                messages = call.mailbox.get(timeout=_POLL_S)
            except queue.Empty:
                if left_s is not None:
                    left_s -= _POLL_S
                    if left_s <= 0:
                        raise EngineError("the engine's process gives no answer") from None
                continue
            if any(message[0] == "resubmit" for message in messages):
                self._submit(call)
                continue
            return messages

    def _release(self, call: _Call) -> None:
        """The caller has seen the end, or does not want to."""
        with self._lock:
            is_unfinished = self._calls.pop(call.number, None) is not None
            child = self._child
            if child is not None:
                child.waited_for = bool(self._calls)
        if is_unfinished and child is not None and call.message[0] == "generate":
            child.send("cancel", call.number)

    def _cancel(self, call: _Call) -> None:
        call.is_cancelled = True
        with self._lock:
            child = self._child if call.number in self._calls else None
        if child is not None:
            child.send("cancel", call.number)

    # -- the side of the child: threads of EngineProcess --------------------------------------------------------------

    def _on_frame(self, messages: list[Message]) -> None:
        by_call: dict[int, list[Message]] = {}
        for message in messages:
            if message[0] == "refused":
                self._refusal = message[1]
            elif message[0] == "planned":
                self._plan = message[1]
            elif message[0] == "ready":
                self._is_ready = True
                self._changes += [message[2]] if message[2] and message[2] not in self._changes else []
            elif message[0] != "beat":
                by_call.setdefault(message[1], []).append(message)
        with self._lock:
            for number, group in by_call.items():
                call = self._calls.get(number)
                if call is not None:  # else nobody waits for it any more
                    _note_progress(call, group)
                    call.mailbox.put(group)
                    if group[-1][0] in ("done", "failed", "answer"):
                        del self._calls[number]
            if self._child is not None:
                self._child.waited_for = bool(self._calls)
                self._child.loads = self._all_load()

    def _all_load(self) -> bool:
        return all(call.doing == _LOADING for call in self._calls.values())

    def _on_silence(self, is_silent: bool) -> None:
        text = "the engine gives no sign of life; waiting" if is_silent else "the engine is there again"
        with self._lock:
            for call in self._calls.values():
                if call.is_started:
                    call.mailbox.put([("silence", call.number, text)])

    def _on_death(self, status: int, hung: str | None) -> None:
        with self._lock:
            self._child, self._is_ready = None, False
            calls, self._calls = list(self._calls.values()), {}
            # Whoever was being answered is told; with nobody being answered, whoever is first in line.
            concerned = [call for call in calls if call.is_started] or calls[:1]
            doing = concerned[0].doing if concerned else "while it was idle"
            death = Death(status, doing, hung, self._refusal, self._plan)
            self._refusal = self._plan = None
            change = ""
            if concerned and not self._is_closed:
                self.options, change = safer(self.options, death)
                self._changes.append(f"{death.sentence}; it runs with {change} now" if change else death.sentence)
            if not self._is_closed:
                logger.error("%s; next start: %s", death.sentence, change or "as before")
            for call in calls:
                told = call in concerned or self._is_closed
                call.mailbox.put([("died", call.number, death, change) if told else ("resubmit", call.number)])


def _note_progress(call: _Call, messages: list[Message]) -> None:
    call.is_started = call.is_started or any(message[0] == "started" for message in messages)
    if any(message[0] in ("token", "event") for message in messages):
        call.doing = "while answering"
    elif any(message[0] == "prefill" for message in messages):
        call.doing = "while reading the prompt"


def _input_key(request: Request) -> str:
    text = repr((request.system, request.prompt, list(request.messages), list(request.prompt_tokens)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _error(name: str, message: str) -> errors.EdgeSpecQuantError:
    """The error the child raised, as the same class of our tree."""
    kind = getattr(errors, name, EngineError)
    error = kind(message)
    return error if isinstance(error, errors.EdgeSpecQuantError) else EngineError(message)
