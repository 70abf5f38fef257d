"""Answers under way: asks the engine, gathers what comes, keeps it in the store piece by piece, ends it cleanly.

One answer at a time. Takes an Engine and a Dialogue; gives message ids and pieces to draw. Knows no widgets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ...params import SamplingParams
from ...store import Message, MessageWriter
from ..engine import Engine
from ..news import ReplyEnd
from .dialogue import Dialogue
from .redo import Redo
from .reply import Reply, Run

GREEDY = SamplingParams(temperature=0.0)
STATUS_OF = {"stop": "complete", "length": "complete", "cancelled": "interrupted", "interrupted": "interrupted"}


class Turns:
    """`reply` is the one that is arriving or came last; `running` says which."""

    def __init__(self, engine: Engine, dialogue: Dialogue, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine, self.dialogue, self.clock = engine, dialogue, clock
        self.reply: Reply | None = None
        self.last_end: ReplyEnd | None = None
        self._writer: MessageWriter | None = None
        self._redo: Redo | None = None
        self._continued: Message | None = None
        self._ticket = 0

    @property
    def running(self) -> bool:
        """Whether an answer is arriving."""
        return self._writer is not None

    @property
    def message_id(self) -> int | None:
        """The message being written."""
        return self._writer.message_id if self._writer else None

    def begin(self, beside: int | None = None, redo: Redo | None = None, continued: Message | None = None) -> int:
        """Makes room for an answer below what is on show, or for another version of an answer. Gives its id.

        continued: the answer that the new one begins with; its text is there at once.
        Nothing arrives before `start`, so that its place on the screen can be drawn first.
        """
        assert not self.running
        self._writer = self.dialogue.begin_answer(beside)
        self._redo, self._continued = redo, continued
        self._ticket += 1
        self.reply, self.last_end = Reply(self._ticket, self.clock(), redo.tokens if redo else ()), None
        if continued is not None:
            self.reply.begin_with(continued)
            self._writer.append(continued.text, continued.thought)
            self._writer.flush()
        return self._writer.message_id

    def start(self) -> None:
        """Asks the engine for the answer begun."""
        if self._writer is None:
            return
        request = self.dialogue.request(self._writer.message_id, self._continued)
        if self._redo is not None:
            redo = self._redo
            request = replace(request, target=redo.target, earlier_reply=redo.tokens, sampling=GREEDY)
        self.engine.reply(self._ticket, request)

    def take(self) -> list[Run]:
        """What came since the last call, to draw; it is on its way to the store as well."""
        events = self.engine.take_events()
        if self.reply is None or self._writer is None:
            return []
        fresh = self.reply.take(events, self.clock())
        self._writer.append("".join(event.text for event in events), "".join(event.thought for event in events))
        return fresh

    def end(self, end: ReplyEnd) -> Message | None:
        """Finishes the message in the store. None for the end of an answer that nobody waits for any more."""
        if self._writer is None or self.reply is None or end.ticket != self._ticket:
            return None
        self.last_end = end
        return self._finish(STATUS_OF.get(end.finish_reason, "error"), end)

    def stop(self) -> None:
        """Stops the answer; its end still comes as news."""
        if self.running:
            self.engine.cancel()

    def abandon(self) -> None:
        """Keeps what came so far as interrupted, without waiting for the engine."""
        if self._writer is not None:
            self.engine.cancel()
            self.take()
            self._finish("interrupted", ReplyEnd(self._ticket, "cancelled", None, "", ""))

    def _finish(self, status: str, end: ReplyEnd) -> Message:
        assert self._writer is not None and self.reply is not None
        writer, self._writer = self._writer, None
        extra: dict[str, object] = {"finish_reason": end.finish_reason}
        if (thought_s := self.reply.thought_s(self.clock())) is not None:
            extra["thought_s"] = thought_s
        if end.error:
            extra["error"] = end.error
        if self._redo is not None:
            extra["redo"] = self._redo.record(self.reply.n_agreed)
        writer.finish(self.reply.record(end.stats, end.target, end.draft, extra), status=status)
        return self.dialogue.store.message(writer.message_id)
