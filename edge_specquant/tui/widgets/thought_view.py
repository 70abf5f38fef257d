"""What a model thought before an answer: one folded line that grows, opened by the mouse or by the message's own key.

Takes pieces of text and figures; knows no engine. The text is drawn only while it is open.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.widgets import Static

from ...printable import shown
from ...units import format_seconds
from .origin_text import OriginText


class ThoughtView(Vertical):
    """Nothing at all while there is no thought."""

    DEFAULT_CSS = """
    ThoughtView { height: auto; padding: 0 2; display: none; }
    ThoughtView.some { display: block; }
    ThoughtView > .line { height: 1; color: $text-muted; text-style: italic; }
    ThoughtView > .line:hover { color: $text; }
    ThoughtView > OriginText { text-opacity: 65%; border-left: solid $panel; padding: 0 1; margin: 0 0 1 0; }
    """

    def __init__(self, thought: str, n_tokens: int | None, seconds: float | None, *, is_going_on: bool) -> None:
        super().__init__(classes="some" if thought else "")
        self._pieces = [thought] if thought else []
        self.n_chars = len(thought)
        self._figures = (n_tokens, seconds)
        self._is_going_on = is_going_on
        self._body: OriginText | None = None
        self._line = Static(self._line_text(), classes="line", markup=False)

    def compose(self) -> ComposeResult:
        """The line; the text comes when it is opened."""
        yield self._line

    @property
    def text(self) -> str:
        """The whole thought."""
        return "".join(self._pieces)

    @property
    def is_open(self) -> bool:
        """Whether the text is on show."""
        return self._body is not None

    async def grow(self, piece: str, n_tokens: int | None, seconds: float | None, *, is_going_on: bool) -> None:
        """Adds a piece and counts on."""
        self._figures, self._is_going_on = (n_tokens, seconds), is_going_on
        if piece:
            self._pieces.append(piece)
            self.n_chars += len(piece)
            self.add_class("some")
        if self._body is not None and piece:
            await self._body.write([("target", shown(piece))])
        self._line.update(self._line_text())

    async def toggle(self) -> None:
        """Opens or folds."""
        if self._body is None:
            self._body = OriginText([("target", shown(self.text))])
            await self.mount(self._body)
        else:
            body, self._body = self._body, None
            await body.remove()
        self._line.update(self._line_text())

    async def on_click(self, event: Click) -> None:
        """On the line or the text."""
        event.stop()
        await self.toggle()

    def _line_text(self) -> Content:
        n_tokens, seconds = self._figures
        figures = [f"for {_whole_seconds(seconds)}"] if seconds is not None else []
        counted = [f"{n_tokens} tokens"] if n_tokens is not None else []
        said = ", ".join([" ".join(["thinking" if self._is_going_on else "thought", *figures]), *counted])
        return Content(f"{'▾' if self.is_open else '▸'} {said}")


def _whole_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if 10 <= seconds < 120 else format_seconds(seconds)
