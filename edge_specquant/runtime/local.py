"""The engine in this process: a family and options to replies, in the order in which they were asked for.

Whether it runs in a script or in the child process of a front end (`child.py`), this is what answers. Knows no pipes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .. import config
from ..engine.caches.kv_cache import KVCache
from ..engine.caches.residents import Residents
from ..engine.caches.snapshot_files import SnapshotFiles
from ..engine.caches.snapshots import Snapshots
from ..engine.constraint import Constraints
from ..engine.control.traces import TraceFile
from ..engine.events import TokenEvent
from ..engine.prompts.shorten import Shorten
from ..engine.session import ReplyPlan, Session
from ..engine.structured.form import form_of
from ..engine.thoughts.parts import Parts
from ..errors import EngineError
from ..gguf.family.family import Family
from ..native.protocol import Model, Progress
from ..placement.machine.memory_pressure import memory_now
from ..placement.machine.this_machine import usable_threads
from ..request import Request
from .logs import logger
from .models.default_siblings import choose_siblings
from .models.make_room import MemoryNow, Relief, over_budget
from .models.measurements import Measured
from .models.under_plan import MakePlan, Planned, planner_of, wished_draft
from .models.variants import Variants
from .options import EngineOptions, OnPrefill
from .reply import Events, Reply
from .serving.parted import Parted
from .serving.prompts import Prompts
from .serving.routed import Routed
from .serving.slots import Slot, Slots
from .serving.waiting_line import Line, Place
from .status import ResidentStatus, Status

OpenModel = Callable[[str, Progress], Model]
"""Opens a variant by name; the progress callback stops the load by returning False."""


class LocalEngine:
    """An opened family.

    open_variant replaces how a variant is loaded (a fake backend does so), and then nothing is planned but by a
    make_plan given with it. memory: what is free at this moment.
    """

    def __init__(
        self,
        family: Family,
        options: EngineOptions,
        open_variant: OpenModel | None = None,
        *,
        make_plan: MakePlan | None = None,
        memory: MemoryNow = memory_now,
    ) -> None:
        self.family = family
        planner = planner_of(family, options) if open_variant is None else None
        self.options = options = replace(options, n_threads=options.n_threads or usable_threads())
        self.planned = planned = Planned(options, make_plan or planner)
        self._variants = Variants(family, options, planned)
        self._open_variant = open_variant or self._variants.open
        self._measured = None
        if open_variant is None:
            self._measured = Measured(family, options, lambda v: planned.layers(v)[0], lambda: planned.kv_types)
        self._relief = Relief(memory)
        self._constraints = Constraints()
        self._routed = Routed()
        self._files: dict[str, SnapshotFiles] = {}
        self._slots = Slots(
            options.n_parallel, self._load, self._variants.n_file_bytes, self._new_snapshots, self._new_session
        )
        self._line = Line(options.n_parallel)
        self._running: dict[Place, Slot] = {}
        self._loading = threading.local()
        self._planning = threading.Lock()
        self._switching = threading.Lock()
        self._prompts = Prompts()
        self.notices: list[str] = []

    def generate(self, request: Request, on_prefill: OnPrefill | None = None) -> Reply:
        """One reply, when its turn comes. Errors of our tree are raised by the first step."""
        place = Place(is_alone=request.speculation.strict)
        return Reply(self._turn(place, request, on_prefill), lambda: self._cancel(place))

    def cancel(self) -> None:
        """Cancels the reply being written and all that wait."""
        for place in self._line.all():
            self._cancel(place)

    def close(self) -> None:
        """Writes snapshots if there is a disk budget, frees contexts and models; twice is fine."""
        if self.options.snapshot_disk_bytes:
            self._slots.keep()
        self._slots.close()

    def siblings(self, request: Request) -> tuple[str, str]:
        """(target, draft) that would answer this request."""
        return choose_siblings(self.family, self.options, request, self.planned.plan_for)

    def tokens(self, request: Request) -> list[int]:
        """The prompt's token ids, template applied unless raw; loads the target if it is not in memory."""
        self._loading.place = None
        with self._planning:
            return self._tokens(request)

    def is_ready(self) -> bool:
        """Always: it lives and dies with this process."""
        return True

    def status(self) -> Status:
        """What is in memory and who waits. Call from any thread."""
        residents = tuple(
            ResidentStatus(
                name=resident.name,
                n_bytes=resident.n_bytes,
                load_s=resident.load_s,
                n_contexts=len(resident.contexts),
                n_ctx=max((context.n_ctx for context in resident.contexts), default=0),
                n_cached=self._slots.n_cached(resident.name),
            )
            for resident in self._slots.held()
        )
        return Status(
            mode="local",
            family=self.family.name,
            pid=os.getpid(),
            busy=bool(self._line.all()),
            n_waiting=self._line.n_waiting,
            residents=residents,
            n_snapshots=sum(len(slot.snapshots) for slot in self._slots.all),
            n_snapshot_bytes=sum(slot.snapshots.n_bytes for slot in self._slots.all),
            notices=tuple(self.notices),
            plan=self.planned.plan if residents else None,
            n_evicted=self._slots.n_evicted,
            swap_s=self._slots.swap_s,
        )

    # -- one reply --------------------------------------------------------------------------------------------------

    def _turn(self, place: Place, request: Request, on_prefill: OnPrefill | None) -> Events:
        try:
            if self._line.wait(place):
                yield from self._reply(place, request, on_prefill)
            else:
                yield TokenEvent("", finish_reason="cancelled")
        except EngineError:
            if not place.cancelled.is_set():
                raise
            yield TokenEvent("", finish_reason="cancelled")  # stopped while a model was being loaded
        finally:
            self._leave(place)

    def _reply(self, place: Place, request: Request, on_prefill: OnPrefill | None) -> Events:
        if self.options.log_prompts:
            logger.info("request %r", request)
        self._loading.place = place  # models are loaded by the first step, in this thread
        with self._planning:
            request, decision = self._routed.decide(request, self._count_tokens, self.family.variants)
            plan = self._plan(request, on_prefill)
            unmet = () if request.prompt_tokens else tuple(self._prompts.notices)
        slot = self._enter(place, plan)
        news = self._make_room(slot, plan)
        said = Parted()
        try:
            for told in (*([news] if news else []), *unmet):
                yield TokenEvent("", note=told)
            for event in slot.session.reply(plan):
                said.take(event)
                if event.finish_reason and decision is not None:
                    event = self._routed.finish(event, decision)
                if event.finish_reason:
                    logger.debug("%s with %s: %s, %s", plan.target, plan.draft, event.finish_reason, event.stats)
                yield event
        finally:
            routed = [self._routed.notice] if self._routed.notice else []
            if not plan.draft_is_wish and (refusal := self.planned.refusal(plan.target)):
                routed.append(refusal)
            self.notices = [*self.planned.notices, *slot.session.notices, *routed, *unmet]
            self._remember(plan, said)

    def _enter(self, place: Place, plan: ReplyPlan) -> Slot:
        with self._switching:
            slot = self._running[place] = self._slots.take(plan.target, plan.prompt, is_alone=place.is_alone)
            slot.session.resume()
            if place.cancelled.is_set():  # before there was anything to cancel
                slot.session.cancel()
            return slot

    def _make_room(self, slot: Slot, plan: ReplyPlan) -> str:
        """Frees siblings that the budget or the memory at this moment has no room for; gives a sentence or "".

        Only in slots that are idle: whoever writes a reply keeps what it uses.
        """
        draft = wished_draft(plan.draft)
        draft = None if draft in ("none", plan.target) else draft
        n_bytes = self._variants.n_bytes
        with self._planning, self._switching:  # nobody tokenizes, no reply begins
            mine = self._slots.idle_with(slot.session)
            held = self._slots.names_by_age()
            unasked = None if plan.draft_is_wish else draft
            in_use = frozenset({plan.target, *([draft] if draft and plan.draft_is_wish else [])})
            leaving, news = self._relief.look(held, draft=unasked, in_use=in_use, n_bytes=n_bytes)
            for each in mine:
                each.leave_out_only(self._relief.drafts)
            wanted = {plan.target, *([draft] if draft and draft not in self._relief.drafts else [])}
            full = over_budget(held, wanted, self.planned.n_budget, n_bytes)
            for name in dict.fromkeys([*([leaving] if leaving else []), *full]):
                logger.info(
                    "%s is freed: %s", name, "memory is running out" if name == leaving else "the plan's budget"
                )
                for each in mine:
                    each.forget(name)
        if news:
            logger.warning("%s", news)
        return news

    def _leave(self, place: Place) -> None:
        with self._switching:  # so that a late cancel of this reply cannot stop the next one in its slot
            slot = self._running.pop(place, None)
            if slot is not None:
                slot.is_busy = False
        self._line.leave(place)

    def _remember(self, plan: ReplyPlan, said: Parted) -> None:
        for resident in self._slots.held() if said.token_ids else ():
            if resident.name == plan.target:
                replies, vocab = self._prompts.replies, resident.model.vocab
                replies.remember(said.text, said.answer_ids, vocab)
                replies.remember(said.thought, said.thought_ids, vocab, "reasoning_content")
        if self.options.log_prompts:
            logger.info("reply %r", said.text)

    def _cancel(self, place: Place) -> None:
        self._line.cancel(place)
        with self._switching:
            slot = self._running.get(place)
            if slot is not None:
                slot.session.cancel()

    def _plan(self, request: Request, on_prefill: OnPrefill | None) -> ReplyPlan:
        target, draft = self.siblings(request)
        self.planned.follow(target, wished_draft(request.speculation.draft))
        prompt, parts = self._prompt(request)
        return ReplyPlan(
            prompt=prompt,
            parts=parts,
            target=target,
            draft=draft,
            sampling=request.sampling,
            speculation=request.speculation,
            max_tokens=request.max_tokens,
            min_tokens=request.min_tokens,
            stops=request.stop,
            on_prefill=on_prefill,
            earlier_reply=request.earlier_reply,
            draft_is_wish=request.speculation.draft is not None or self.options.draft is not None,
            form=form_of(request),
            n_logprobs=request.logprobs,
            n_prompt_logprobs=request.prompt_logprobs,
            shorten=self._prompts.shortener(request, self._vocabulary_of(request))
            if request.on_full == "shift"
            else None,
        )

    def _count_tokens(self, text: str) -> int:
        """By the vocabulary of a model in memory; about four bytes a token before there is one."""
        held = self._slots.held()
        return len(held[0].model.vocab.tokenize(text)) if held else 1 + len(text.encode("utf-8", "replace")) // 4

    def _prompt(self, request: Request) -> tuple[list[int], Parts | None]:
        if request.prompt_tokens:
            return list(request.prompt_tokens), None
        return self._prompts.prepare(request, self._vocabulary_of(request))

    def _tokens(self, request: Request) -> list[int]:
        return self._prompt(request)[0]

    def _shortener(self, request: Request) -> Shorten:
        return self._prompts.shortener(request, self._vocabulary_of(request))

    def _vocabulary_of(self, request: Request) -> Model:
        """Any sibling in memory, since they share vocabulary and template; else the one that would answer."""
        held = self._slots.held()
        return held[-1].model if held else self._slots.model(self.siblings(request)[0])

    # -- models and contexts ----------------------------------------------------------------------------------------

    def _new_snapshots(self) -> Snapshots:
        return Snapshots(self.options.snapshot_bytes // self.options.n_parallel, self._snapshot_files)

    def _new_session(self, residents: Residents, snapshots: Snapshots) -> Session:
        measured = self._measured
        session = Session(
            residents,
            lambda variant: self._variants.params(residents.get(variant).model.n_ctx_train),
            snapshots,
            curves=measured.curves if measured else lambda _: None,
            certificate=measured.certificate if measured else None,
            on_open=self._on_open,
            traces=self._trace_file(),
            power=measured.power if measured and self.options.objective == "energy" else None,
            give_way=lambda target: self._give_way(session, target),
            constraints=self._constraints,
        )
        return session

    def _give_way(self, session: Session, target: str) -> bool:
        """After a target's context could not be made: the next smaller plan, and what it has no room for is freed."""
        layers = self.planned.layers(target)
        if not self.planned.shrink(target):
            return False
        plan = self.planned.plan
        with self._planning, self._switching:
            mine = self._slots.idle_with(session)
            for name in self.family.variants:
                for each in mine if name != target or self.planned.layers(target) != layers else ():
                    each.forget(name)
                if name != target and (plan is None or plan.draft is None):
                    session.leave_out(name)
        return True

    def _trace_file(self) -> TraceFile | None:
        record = self.options.record
        return None if record is None else TraceFile(record, self.family.name, self.options.record_task)

    def _on_open(self, variant: str, cache: KVCache) -> None:
        """A first context on this machine is measured before it is used."""
        if self._measured and self.options.calibrate:
            self._measured.measure(variant, cache.context)
            if self.options.objective == "energy":
                self._measured.measure_power(variant, cache.context)

    def _load(self, variant: str) -> Model:
        def go_on(_done: float) -> bool:
            place: Place | None = getattr(self._loading, "place", None)
            return place is None or not place.cancelled.is_set()

        logger.info("loading %s of %s", variant, self.family.name)
        return self._open_variant(variant, go_on)

    def _snapshot_files(self, variant: str) -> SnapshotFiles | None:
        if not self.options.snapshot_disk_bytes:
            return None
        if variant not in self._files:
            record = self.family.variant(variant)
            # A family of one bare file has no hash: size and time stamp stand in for it.
            weights = record.sha256 or f"{record.path.resolve()} {record.n_bytes} {record.path.stat().st_mtime_ns}"
            key = hashlib.sha256(f"{weights} {_engine_version()}".encode()).hexdigest()
            folder: Path = config.cache_dir() / "kv" / key[:16]
            self._files[variant] = SnapshotFiles(folder, key, self.options.snapshot_disk_bytes)
        return self._files[variant]


def _engine_version() -> str:
    from importlib.metadata import version

    return version("llama-cpp-python")
