"""The pane of conversations: search on top, the list below, and the keys that rename, pin, delete, undo, export.

Reads the store for the list; everything that changes something is reported upwards.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from ...printable import shown
from ...store import Store

MAX_LISTED = 300


class ConversationList(Vertical):
    """Hidden until asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "want('rename')", "Rename"),
        Binding("p", "want('pin')", "Pin"),
        Binding("d,delete", "want('delete')", "Delete"),
        Binding("u", "want('undo')", "Undo"),
        Binding("e", "want('export')", "Export"),
        Binding("slash", "search", "Search"),
        Binding("escape", "want('close')", "Back"),
    ]
    DEFAULT_CSS = """
    ConversationList { width: 34; max-width: 50%; display: none; background: $surface;
                       border-right: vkey $surface-lighten-1; }
    ConversationList.shown { display: block; }
    ConversationList > Input { border: none; height: 1; margin: 1 1; padding: 0 1; background: $boost; }
    ConversationList > Input:focus { background: $primary 20%; }
    ConversationList > OptionList { height: 1fr; border: none; background: $surface; padding: 0 1; }
    ConversationList > OptionList:focus { border: none; background-tint: $foreground 0%; }
    """

    class Wanted(Message):
        """Somebody wants something of a conversation (None: of none)."""

        def __init__(self, what: str, conversation_id: int | None, message_id: int | None = None) -> None:
            super().__init__()
            self.what, self.conversation_id, self.message_id = what, conversation_id, message_id

    def __init__(self) -> None:
        super().__init__(id="conversations")
        self.store: Store | None = None
        self._targets: list[tuple[int, int | None]] = []

    def compose(self) -> ComposeResult:
        """Search and list."""
        yield Input(placeholder="Search", id="search")
        yield OptionList(id="entries", markup=False)

    def refresh_entries(self, keep: int | None = None) -> None:
        """Reads the store again; `keep` is the conversation to highlight."""
        if self.store is None:
            return
        entries = self.query_one(OptionList)
        query = self.query_one(Input).value
        rows = self._hits(query) if query.strip() else self._listing()
        self._targets = [(conversation_id, message_id) for _, conversation_id, message_id in rows]
        entries.clear_options()
        entries.add_options([Option(content) for content, _, _ in rows])
        places = [i for i, (number, _) in enumerate(self._targets) if number == keep]
        if rows:
            entries.highlighted = places[0] if places else 0

    @on(Input.Changed, "#search")
    def _search_changed(self) -> None:
        self.refresh_entries()

    @on(Input.Submitted, "#search")
    def _search_sent(self) -> None:
        self.query_one(OptionList).focus()
        self.action_want("open")

    @on(OptionList.OptionSelected, "#entries")
    def _selected(self) -> None:
        self.action_want("open")

    def on_key(self, event: object) -> None:
        """Down leaves the search for the list."""
        if getattr(event, "key", "") == "down" and self.query_one(Input).has_focus:
            self.query_one(OptionList).focus()

    def action_search(self) -> None:
        """To the search."""
        self.query_one(Input).focus()

    def action_want(self, what: str) -> None:
        """Reports what is wanted of the highlighted conversation."""
        place = self.query_one(OptionList).highlighted
        target = self._targets[place] if place is not None and place < len(self._targets) else (None, None)
        self.post_message(self.Wanted(what, *target))

    def _listing(self) -> list[tuple[Content, int, int | None]]:
        assert self.store is not None
        return [
            (Content.assemble(("● " if c.pinned else "", "$text-accent"), _one_line(c.title) or "untitled"), c.id, None)
            for c in self.store.conversations(limit=MAX_LISTED)
        ]

    def _hits(self, query: str) -> list[tuple[Content, int, int | None]]:
        assert self.store is not None
        return [
            (
                Content.assemble(
                    (_one_line(hit.conversation.title) or "untitled", "bold"),
                    ("" if hit.message is None else "\n" + _one_line(hit.excerpt), "$foreground 60%"),
                ),
                hit.conversation.id,
                None if hit.message is None else hit.message.id,
            )
            for hit in self.store.search(query)
        ]


def _one_line(text: str) -> str:
    return " ".join(shown(text).split())
