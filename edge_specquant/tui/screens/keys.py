"""The window of keys: everything a hand can do here, on one page."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("Writing", (
        ("Enter", "send"),
        ("Ctrl+J, Shift+Enter", "new line"),
        ("Up, Down", "earlier messages"),
        ("Esc, Ctrl+C", "stop the answer"),
        ("Ctrl+F", "attach a text file"),
        ("F2", "system prompt and presets"),
    )),
    ("Answers", (
        ("Ctrl+R", "regenerate the last answer"),
        ("Ctrl+G", "redo it at higher precision"),
        ("Ctrl+O", "colour tokens by who wrote them"),
        ("Ctrl+S", "show or hide the figures"),
        ("Ctrl+T", "branches"),
    )),
    ("On a message (Shift+Tab)", (
        ("Up, Down", "another message"),
        ("Left, Right", "another version of it"),
        ("c, b", "copy it, copy its next code block"),
        ("t", "open or fold what was thought"),
        ("e, r, g, d, u", "edit, regenerate, redo, delete, undo"),
        ("n", "go on with an answer that was cut"),
    )),
    ("Conversations", (
        ("Ctrl+L", "list and search"),
        ("Ctrl+N", "new conversation"),
        ("r, p, d, u, e", "rename, pin, delete, undo, export"),
    )),
    ("Program", (
        ("Ctrl+P", "all commands, themes"),
        ("F3", "another model"),
        ("Ctrl+Q", "quit"),
    )),
)  # fmt: skip


class Keys(ModalScreen[None]):
    """Any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,enter", "dismiss(None)", "Back")]

    def compose(self) -> ComposeResult:
        """A page that scrolls where the terminal is small."""
        with Vertical(classes="window tall"), VerticalScroll():
            for title, rows in KEYS:
                yield Static(title, classes="window-title", markup=False)
                lines = [Content.assemble((f"{key:<21}", "$text-accent"), what) for key, what in rows]
                yield Static(Content("\n").join(lines))
