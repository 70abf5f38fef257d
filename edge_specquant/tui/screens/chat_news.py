"""What the engine thread reports, put on the chat screen: state, pieces of an answer, its end, trouble."""

from __future__ import annotations

from ...units import format_bytes, format_rate
from ..news import Arrived, Ended, EngineNews, Loading, NoFamily, Prefilling, Ready, Trouble
from ..widgets.banner import CHOOSE, Banner
from ..widgets.top_line import TopLine
from .conversation_screen import ConversationScreen

AGAIN = "Ctrl+R answers again"


class ChatNews:
    """Belongs to one chat screen."""

    def __init__(self, screen: ConversationScreen) -> None:
        self._screen = screen

    async def hear(self, news: EngineNews) -> None:
        """Draws one piece of news."""
        if isinstance(news, Arrived):
            await self.draw_fresh()
        elif isinstance(news, Prefilling):
            self._prefilling(news)
        elif isinstance(news, Ended):
            await self._ended(news)
        elif isinstance(news, Loading):
            self._screen.opening = True
            self._state(progress_text(news), busy=True)
        elif isinstance(news, Ready):
            self._ready(news)
        elif isinstance(news, (Trouble, NoFamily)):
            self._trouble(news)

    def stopping(self) -> None:
        """Somebody pressed stop."""
        self._state("stopping", busy=True)

    async def draw_fresh(self) -> None:
        """Draws what has come of the answer."""
        if not self._screen.running:
            return
        view = self._screen.view_of(self._screen.turns.message_id)
        fresh = self._screen.turns.take()
        turns = self._screen.turns
        if view is not None and turns.reply is not None:
            await view.think(turns.reply, turns.clock())
        if view is not None and fresh:
            await view.write(fresh)
        rate = turns.reply.tokens_per_s(turns.clock()) if turns.reply else None
        self._state(format_rate(rate) if rate else "writing", busy=True)

    def _prefilling(self, news: Prefilling) -> None:
        reply = self._screen.turns.reply if self._screen.has_begun else None
        if reply is not None and reply.ticket == news.ticket:
            reply.prefill = (news.done, news.total)
            if news.total > news.done:
                self._state(f"reading {news.done} of {news.total} tokens", busy=True)

    async def _ended(self, news: Ended) -> None:
        screen, end = self._screen, news.end
        await self.draw_fresh()
        view = screen.view_of(screen.turns.message_id) if screen.has_begun else None
        message = screen.turns.end(end) if screen.has_begun else None
        if message is None:
            return
        screen.refresh_bindings()
        if view is not None:
            await view.finish(message)
            await view.show_origins(screen.coloured(message))
        self._say_ready()
        screen.draw_figures()
        if end.error:
            screen.complain(end.error, AGAIN)
        elif end.finish_reason == "interrupted":
            screen.complain(end.notices[0] if end.notices else "the engine died; what was written is kept", AGAIN)
        elif end.finish_reason == "length":
            screen.tell("the answer ends here: the token limit or the context is full; n on it goes on")

    def _ready(self, news: Ready) -> None:
        self._screen.facts = news.facts
        self._screen.opening = False
        self._screen.query_one(Banner).model_is_there()
        self._screen.query_one(TopLine).show_family(news.facts.name)
        self._say_ready()
        self._screen.draw_figures()

    def _trouble(self, news: Trouble | NoFamily) -> None:
        """Nothing could be opened; an older family, if there was one, is closed by now."""
        self._screen.facts, self._screen.opening = None, False
        self._say_ready()
        if isinstance(news, Trouble):
            self._screen.complain(news.text, CHOOSE)
        else:
            self._screen.complain(news.reason, CHOOSE, is_error=not news.stopped)

    def _say_ready(self) -> None:
        facts = self._screen.facts
        self._state("no model" if facts is None else f"{facts.target} + {facts.draft} ready", busy=facts is None)

    def _state(self, text: str, *, busy: bool) -> None:
        self._screen.show_state(text, busy=busy)


def progress_text(news: Loading) -> str:
    """'writing q8 34 % of 137 MiB', or the step alone."""
    if not news.total:
        return news.step
    return f"{news.step} {news.done / news.total:.0%} of {format_bytes(news.total)}"
