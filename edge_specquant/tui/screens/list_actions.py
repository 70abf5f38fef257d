"""What the pane of conversations asks for, done: open, rename, pin, delete, undo, export."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ...errors import EdgeSpecQuantError, FileError
from ...store import Deletion, Store
from ..widgets.conversation_list import ConversationList
from .ask_line import AskLine
from .conversation_screen import ConversationScreen


class ListActions:
    """Holds the deletions that can be undone, newest last."""

    def __init__(self, screen: ConversationScreen) -> None:
        self._screen = screen
        self.deletions: list[Deletion] = []
        self._doings: dict[str, Callable[[Store, int], None]] = {
            "rename": self._rename,
            "pin": self._pin,
            "delete": self._delete,
            "export": self._export,
        }

    def obey(self, wanted: ConversationList.Wanted) -> None:
        """Does what a key in the pane asked for."""
        if wanted.what == "close":
            self._screen.action_conversations()
        elif wanted.what == "undo":
            self.undo()
        elif wanted.conversation_id is not None:
            if wanted.what == "open":
                self._open(wanted.conversation_id, wanted.message_id)
            else:
                self._doings[wanted.what](self._store, wanted.conversation_id)

    def undo(self) -> None:
        """Brings back what was deleted last."""
        if not self.deletions:
            self._screen.tell("there is nothing to undo")
            return
        deletion = self.deletions.pop()
        conversation = self._store.undo(deletion)
        self._refresh(conversation.id)
        self._screen.show_again(conversation.id)

    @property
    def _store(self) -> Store:
        return self._screen.dialogue.store

    def _refresh(self, keep: int | None) -> None:
        self._screen.query_one(ConversationList).refresh_entries(keep)

    def _open(self, conversation_id: int, message_id: int | None) -> None:
        if message_id is not None:
            self._store.show(message_id)
        self._screen.open_conversation(conversation_id, message_id)

    def _rename(self, store: Store, conversation_id: int) -> None:
        def renamed(title: str | None) -> None:
            if title is not None:
                store.set_title(conversation_id, title.strip())
                self._refresh(conversation_id)
                self._screen.title_changed(conversation_id)

        title = store.conversation(conversation_id).title
        self._screen.app.push_screen(AskLine("Rename the conversation", title), renamed)

    def _pin(self, store: Store, conversation_id: int) -> None:
        store.set_pinned(conversation_id, not store.conversation(conversation_id).pinned)
        self._refresh(conversation_id)

    def _delete(self, store: Store, conversation_id: int) -> None:
        title = store.conversation(conversation_id).title
        self._screen.before_delete(conversation_id)
        self.deletions.append(store.delete(conversation_id))
        self._refresh(None)
        self._screen.tell(f"deleted “{title}”; u brings it back")

    def _export(self, store: Store, conversation_id: int) -> None:
        title = store.conversation(conversation_id).title
        suggestion = str(Path.cwd() / f"{_file_stem(title)}.md")
        hint = ".md keeps the branch on show, .json every branch and figure"
        self._screen.app.push_screen(
            AskLine("Export to a file", suggestion, hint), lambda path: self._write(conversation_id, path)
        )

    def _write(self, conversation_id: int, path_text: str | None) -> None:
        if not path_text:
            return
        path = Path(path_text.strip()).expanduser()
        try:
            export(self._store, conversation_id, path)
        except (EdgeSpecQuantError, OSError, ValueError) as error:
            self._screen.complain(f"cannot export: {error}")
        else:
            self._screen.tell(f"exported to {path}")


def export(store: Store, conversation_id: int, path: Path) -> None:
    """Writes a conversation: JSON for a name ending in .json, else Markdown. Raises FileError, OSError."""
    from ...gguf.format.atomic import write_text_whole
    from ...store.formats.markdown import to_markdown
    from ...store.formats.portable import to_json_text
    from ...store.rows.copies import without_thoughts

    if path.exists():
        raise FileError(f"{path} is there already; choose another name")
    copy = without_thoughts(store.copy(conversation_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_whole(path, to_json_text([copy]) if path.suffix.lower() == ".json" else to_markdown(copy))


def _file_stem(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title).strip("-")[:40] or "conversation"
