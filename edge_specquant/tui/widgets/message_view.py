"""One message on screen: a head line, its text (Markdown, or coloured by origin), and a line of figures below.

Focusable: the keys that act on a message are bound here and reported upwards as `Wanted`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.timer import Timer
from textual.widgets import Static

from ...printable import shown
from ...store import Message
from ..answers.dialogue import Version
from ..answers.reply import Reply, Run, footnote, n_thought_of, runs_of, thought_s_of
from .markdown_text import AnswerMarkdown, fenced
from .origin_text import OriginText, with_departure
from .thought_view import ThoughtView

LONG_MESSAGE_CHARS = 4000
_SHORTEST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0
_COST_FACTOR = 4.0
_ENDS = {"interrupted": "stopped", "error": "failed", "streaming": ""}


class MessageView(Vertical, can_focus=True):
    """A message of the branch on show."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", show=False),
        Binding("down,j", "step(1)", "Down", show=False),
        Binding("left", "want('previous')", "‹ version", show=False),
        Binding("right", "want('next')", "version ›", show=False),
        Binding("c", "want('copy')", "Copy"),
        Binding("b", "want('copy_code')", "Copy code"),
        Binding("e", "want('edit')", "Edit"),
        Binding("r", "want('regenerate')", "Regenerate"),
        Binding("n", "want('go_on')", "Go on", show=False),
        Binding("t", "thought", "Thought"),
        Binding("g", "want('redo')", "Redo precisely"),
        Binding("d", "want('delete')", "Delete"),
        Binding("u", "want('undo')", "Undo", show=False),
        Binding("escape,tab", "app.focus_prompt", "Back"),
    ]
    DEFAULT_CSS = """
    MessageView { height: auto; padding: 0 1; margin: 0 0 1 0; border-left: outer transparent; }
    MessageView:focus { border-left: outer $accent; background: $boost; }
    MessageView.user { border-left: outer $primary; background: $primary 8%; }
    MessageView.user:focus { border-left: outer $accent; background: $primary 16%; }
    MessageView > .head { height: 1; color: $text-muted; padding: 0 2; }
    MessageView.user > .head { color: $text-primary; }
    MessageView > .plain { height: auto; padding: 0 2; }
    MessageView > .foot { height: auto; color: $text-disabled; padding: 0 2; }
    MessageView > .foot.empty { display: none; }
    """

    class Wanted(TextualMessage):
        """Somebody pressed a key on this message."""

        def __init__(self, view: MessageView, what: str) -> None:
            super().__init__()
            self.view, self.what = view, what

    def __init__(
        self, message: Message, version: Version | None = None, *, origins: bool = False, is_near: bool = True
    ) -> None:
        """is_near: likely to be seen at once."""
        super().__init__(classes=message.role)
        self._n_live = 3 if is_near else 0
        self.message = message
        self.version = version
        self.origins = origins
        self.copied_block = -1
        self._drawing = asyncio.Lock()
        self._waiting: list[Run] = []
        self._next_at = 0.0
        self._late: Timer | None = None
        self._runs: list[Run] = runs_of(message.text, message.record)
        self._head = Static(self._head_text(), classes="head", markup=False)
        self._foot = Static("", classes="foot", markup=False)
        record = message.record
        self._thought = ThoughtView(message.thought, n_thought_of(record), thought_s_of(record), is_going_on=False)
        self._body = self._make_body()

    def compose(self) -> ComposeResult:
        """Head, thought, body, foot."""
        yield self._head
        yield self._thought
        yield self._body
        yield self._foot

    def on_mount(self) -> None:
        """The figures, if there are any yet."""
        self.set_foot(footnote(self.message.record))

    @property
    def answers(self) -> bool:
        """Whether a model wrote it."""
        return self.message.role == "assistant"

    async def write(self, runs: Sequence[Run]) -> None:
        """Adds pieces of a reply that is arriving; drawing them takes a fifth of the time at most."""
        for run in runs:
            if self._runs and self._runs[-1][0] == run[0]:
                self._runs[-1] = (run[0], self._runs[-1][1] + run[1])
            else:
                self._runs.append(run)
        self._waiting += runs
        if time.monotonic() >= self._next_at and not self._drawing.locked():
            await self._draw_waiting()
        else:
            self._draw_later()

    async def think(self, reply: Reply, now: float) -> None:
        """What has come of the thought of a reply that is arriving."""
        piece = reply.thought[self._thought.n_chars :]
        if piece or (self._thought.n_chars and reply.answer_at is None):
            going_on = reply.answer_at is None
            await self._thought.grow(piece, reply.n_thought, reply.thought_s(now), is_going_on=going_on)

    async def finish(self, message: Message) -> None:
        """The reply is whole: draws what was held back, and its figures."""
        self.message = message
        await self._draw_waiting()
        if isinstance(self._body, AnswerMarkdown):
            self._body.settle()
        self._head.update(self._head_text())
        self.set_foot(footnote(message.record))
        seconds = thought_s_of(message.record)
        await self._thought.grow("", n_thought_of(message.record), seconds, is_going_on=False)

    async def show_origins(self, origins: bool) -> None:
        """Between Markdown and colours."""
        if not self.answers or origins == self.origins:
            return
        async with self._drawing:
            self.origins = origins
            self._waiting.clear()
            old, self._body = self._body, self._make_body()
            await self.mount(self._body, after=self._thought)
            await old.remove()

    def set_version(self, version: Version | None) -> None:
        """Another place among its siblings."""
        self.version = version
        self._head.update(self._head_text())

    def set_foot(self, text: str) -> None:
        """The line below; an empty one takes no room."""
        self._foot.update(shown(text))
        self._foot.set_class(not text, "empty")

    @property
    def code_blocks(self) -> list[str]:
        """The fenced blocks of an answer."""
        return fenced(self._body.source if isinstance(self._body, AnswerMarkdown) else self.message.text)

    def action_want(self, what: str) -> None:
        """Reports a key."""
        self.post_message(self.Wanted(self, what))

    async def action_thought(self) -> None:
        """Opens or folds what was thought."""
        if self._thought.n_chars:
            await self._thought.toggle()

    def action_step(self, step: int) -> None:
        """Moves the focus to a neighbour."""
        views = list(self.screen.query(MessageView))
        place = views.index(self) + step
        if 0 <= place < len(views):
            views[place].focus()
        elif step > 0:
            self.post_message(self.Wanted(self, "leave"))

    async def _draw_waiting(self) -> None:
        async with self._drawing:
            begun = time.monotonic()
            waiting, self._waiting = self._waiting, []
            if isinstance(self._body, OriginText):
                await self._body.write(waiting)
            elif isinstance(self._body, AnswerMarkdown) and waiting:
                await self._body.write("".join(text for _, text in waiting))
            self._next_at = math.inf
        self.call_after_refresh(self._drawn, begun)

    def _drawn(self, begun: float) -> None:
        """The screen shows it: laying out counts as drawing."""
        ended = time.monotonic()
        self._next_at = ended + min(max(_SHORTEST_WAIT_S, _COST_FACTOR * (ended - begun)), _LONGEST_WAIT_S)
        self._draw_later()

    def _draw_later(self) -> None:
        """What was held back is drawn even if nothing more comes: an engine may pause in mid-sentence."""
        if self._waiting and self._late is None and self._next_at < math.inf:
            self._late = self.set_timer(max(_SHORTEST_WAIT_S, self._next_at - time.monotonic()), self._draw_late)

    async def _draw_late(self) -> None:
        self._late = None
        if self._waiting:
            await self._draw_waiting()

    def _make_body(self) -> Static | AnswerMarkdown | OriginText:
        if not self.answers:
            return Static(_shortened(shown(self.message.text)), classes="plain", markup=False)
        if self.origins:
            return OriginText(with_departure(self._runs) if "redo" in self.message.record else self._runs)
        text = "".join(text for _, text in self._runs)
        return AnswerMarkdown(text, is_whole=self.message.status != "streaming", n_live=self._n_live)

    def _head_text(self) -> Content:
        record = self.message.record
        who = {"user": "you", "assistant": str(record.get("target") or "answer")}.get(
            self.message.role, self.message.role
        )
        parts: list[str] = [shown(who)]
        if self.version is not None:
            parts.append(f"‹ {self.version.position}/{self.version.count} ›")
        if _ENDS.get(self.message.status):
            parts.append(_ENDS[self.message.status])
        return Content("  ".join(parts))


def _shortened(text: str) -> str:
    if len(text) <= LONG_MESSAGE_CHARS:
        return text
    cut = text[:LONG_MESSAGE_CHARS].rsplit("\n", 1)[0] or text[:LONG_MESSAGE_CHARS]
    return f"{cut}\n… {len(text) - len(cut)} more characters"
