"""The first line: which family answers, the conversation's title, and what the engine is doing."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from ...printable import shown

PLACES = ("family", "title", "state")


class TopLine(Horizontal):
    """Three places on one line; the middle one gives way when the terminal is narrow."""

    DEFAULT_CSS = """
    TopLine { height: 1; background: $panel; padding: 0 1; }
    TopLine > Static { height: 1; width: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    TopLine > #family { color: $text-primary; text-style: bold; max-width: 40%; }
    TopLine > #title { width: 1fr; padding: 0 2; color: $text-muted; text-align: center; }
    TopLine > #state { color: $text-success; max-width: 50%; }
    TopLine > #state.busy { color: $text-warning; }
    """

    def compose(self) -> ComposeResult:
        """Left, middle, right."""
        for place in PLACES:
            yield Static("", id=place, markup=False)

    def show_family(self, text: str) -> None:
        """The left place."""
        self._put("family", text)

    def show_title(self, text: str) -> None:
        """The middle place."""
        self._put("title", text)

    def show_state(self, text: str, *, busy: bool) -> None:
        """The right place; busy ones have another colour."""
        self._put("state", text)
        self.query_one("#state").set_class(busy, "busy")

    def _put(self, place: str, text: str) -> None:
        self.query_one(f"#{place}", Static).update(Content(" ".join(shown(text).split("\n"))))
