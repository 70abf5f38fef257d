"""The store of conversations: one object that any thread may use, on one file that several processes may open.

Each call is one short transaction. When the file can no longer be written (full disk, read-only) the content moves to
memory, work goes on, and `notice` says so. Knows nothing of models; a message's record is the caller's.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from ..config import store_path
from ..config.settings import StoreSettings
from ..errors import StoreError
from .file import backups
from .file.database import Database, Operation
from .records import Conversation, Deletion, Hit, Message, clean_role, clean_text
from .rows import answers, conversations, copies, search, tree
from .rows.copies import ConversationCopy
from .rows.process_mark import own_mark
from .rows.tables import next_sequence
from .streaming import Flusher, MessageWriter


def open_store(settings: StoreSettings) -> Store:
    """The store that the settings name: a file, the usual file, or memory when it is switched off."""
    if not settings.enabled:
        return Store.in_memory()
    return Store.open(Path(settings.path) if settings.path else store_path())


class Store:
    """Conversations as trees of messages. Make one with `Store.open(path)` or `Store.in_memory()`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock
        self._read, self._write = database.read, database.write
        self._flusher = Flusher()

    @classmethod
    def open(cls, path: Path, *, clock: Callable[[], float] = time.time) -> Store:
        """Opens or makes the file. Never fails for a bad file or disk: see `notice` and `is_in_memory`."""
        return cls(Database(_absolute(path)), clock)

    @classmethod
    def in_memory(cls, *, clock: Callable[[], float] = time.time) -> Store:
        """A store that ends with the process."""
        return cls(Database(None), clock)

    @property
    def path(self) -> Path | None:
        """The file; None for a store that was made in memory."""
        return self._database.path

    @property
    def is_in_memory(self) -> bool:
        """True when nothing is written to a file: by choice, or because it cannot be (then `notice` says why)."""
        return self._database.is_in_memory

    @property
    def notice(self) -> str | None:
        """What the user must be told of the store's file, in sentences; None when all is well."""
        return self._database.notice

    def return_to_file(self) -> bool:
        """After a full disk: tries at once to go back to the file, which is tried by itself every half minute too."""
        return self._database.return_to_file()

    def close(self) -> None:
        """Ends open answers as interrupted and closes the file."""
        self._flusher.close()
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Conversations

    def create(self, title: str = "", *, system: str = "", preset: Mapping[str, object] | None = None) -> Conversation:
        """A new, empty conversation."""
        now = self._clock()
        return self._write(lambda c: conversations.get(c, conversations.create(c, title, system, preset or {}, now)))

    def conversation(self, conversation_id: int) -> Conversation:
        """One conversation, or StoreError."""
        return self._read(lambda c: conversations.get(c, conversation_id))

    def conversations(self, *, deleted: bool = False, limit: int | None = None) -> list[Conversation]:
        """Pinned ones first, then the last used first; the deleted ones instead, with `deleted`."""
        return self._read(lambda c: conversations.listing(c, deleted=deleted, limit=limit))

    def set_title(self, conversation_id: int, title: str) -> Conversation:
        """Another title."""
        return self._change(conversation_id, lambda c: conversations.set_title(c, conversation_id, title))

    def set_system(self, conversation_id: int, system: str) -> Conversation:
        """Another system prompt."""
        return self._change(conversation_id, lambda c: conversations.set_system(c, conversation_id, system))

    def set_preset(self, conversation_id: int, preset: Mapping[str, object]) -> Conversation:
        """Another preset (plain JSON values)."""
        return self._change(conversation_id, lambda c: conversations.set_preset(c, conversation_id, preset))

    def set_pinned(self, conversation_id: int, pinned: bool) -> Conversation:
        """Pins or unpins."""
        return self._change(conversation_id, lambda c: conversations.set_pinned(c, conversation_id, pinned))

    # Messages

    def messages(self, conversation_id: int) -> list[Message]:
        """The branch on show, first message first."""
        return self._read(lambda c: tree.path(c, conversations.get(c, conversation_id).leaf_id))

    def all_messages(self, conversation_id: int) -> list[Message]:
        """Every branch; a parent comes before its children."""
        return self._read(lambda c: tree.messages(c, conversations.get(c, conversation_id).id))

    def message(self, message_id: int) -> Message:
        """One message, or StoreError."""
        return self._read(lambda c: tree.message(c, message_id))

    def siblings(self, message_id: int) -> list[Message]:
        """This message and its other versions, oldest first."""
        return self._read(lambda c: tree.siblings(c, tree.message(c, message_id)))

    def add(
        self,
        conversation_id: int,
        role: str,
        text: str,
        *,
        after: int | None = None,
        record: Mapping[str, object] | None = None,
    ) -> Message:
        """Adds a complete message below `after`, or below the last message on show; it is then the last."""
        return self._insert(conversation_id, after, role, text, "complete", record)

    def add_beside(self, message_id: int, text: str, *, record: Mapping[str, object] | None = None) -> Message:
        """Adds another version of a message: an edit. The older version and all below it stay as a branch."""
        return self._insert_beside(message_id, text, "complete", record)

    def begin(self, conversation_id: int, role: str = "assistant", *, after: int | None = None) -> MessageWriter:
        """Begins a message that will be written piece by piece, below `after` or the last message on show."""
        return self._writer(self._insert(conversation_id, after, role, "", "streaming", None))

    def begin_beside(self, message_id: int) -> MessageWriter:
        """Begins another version of a message: a regeneration."""
        return self._writer(self._insert_beside(message_id, "", "streaming", None))

    def show(self, message_id: int) -> list[Message]:
        """Puts the branch through a message on show, down to where it was last left. Gives that branch."""
        return self._write(lambda c: tree.path(c, tree.show(c, message_id)))

    # Deletion

    def delete(self, conversation_id: int) -> Deletion:
        """Hides a conversation. `undo` brings it back; `purge` removes it for good."""

        def operation(c: sqlite3.Connection) -> Deletion:
            conversations.delete(c, conversations.get(c, conversation_id).id)
            return Deletion(conversation_id, None, None)

        return self._write(operation)

    def delete_message(self, message_id: int) -> Deletion:
        """Hides a message and all below it; the branch on show moves beside it or above it."""

        def operation(c: sqlite3.Connection) -> Deletion:
            of = tree.message(c, message_id)
            before = conversations.get(c, of.conversation_id).leaf_id
            tree.delete_branch(c, of)
            moved = conversations.get(c, of.conversation_id).leaf_id != before
            return Deletion(of.conversation_id, message_id, before if moved else None)

        return self._write(operation)

    def undo(self, deletion: Deletion) -> Conversation:
        """Brings back what a deletion hid, and on show what it took from view. StoreError after a purge."""

        def operation(c: sqlite3.Connection) -> Conversation:
            if deletion.message_id is None:
                conversations.restore(c, deletion.conversation_id)
            else:
                tree.restore_branch(c, deletion.conversation_id, deletion.message_id)
                on_show = conversations.get(c, deletion.conversation_id).leaf_id
                tree.show_again(c, deletion.conversation_id, deletion.leaf_before or on_show)
            return conversations.get(c, deletion.conversation_id)

        return self._write(operation)

    def purge(self) -> int:
        """Removes all that was deleted for good, from the file, its index and its backups. Gives how many rows."""

        def operation(c: sqlite3.Connection) -> int:
            n_removed = conversations.purge(c)
            search.unindex_purged(c)
            return n_removed

        n_removed = self._write(operation)
        if self.path is not None and not self.is_in_memory:
            self._renew_backups(self.path)
        return n_removed

    # Search and copies

    def search(self, query: str, *, limit: int = 50, thoughts: bool = False) -> list[Hit]:
        """Titles, then messages newest first, that hold every word of the query. Any query is allowed.

        thoughts: what models thought is looked through as well.
        """
        terms = search.terms_of(query)
        if not terms:
            return []
        self._catch_up_index()
        titles = self._read(lambda c: [conversations.get(c, n) for n in search.find_titles(c, terms, limit)])
        hits = [Hit(found, None, search.excerpt(found.title, terms)) for found in titles]
        found = self._read(lambda c: [tree.message(c, n) for n in search.find_messages(c, terms, limit, thoughts)])
        for message in found[: limit - len(hits)]:
            conversation = self.conversation(message.conversation_id)
            said = f"{message.thought}\n{message.text}" if thoughts else message.text
            hits.append(Hit(conversation, message, search.excerpt(said, terms)))
        return hits

    def copy(self, conversation_id: int) -> ConversationCopy:
        """A conversation as a value, for export."""
        return self._read(lambda c: copies.of(c, conversation_id))

    def add_copies(self, values: Sequence[ConversationCopy]) -> list[Conversation]:
        """Adds copies as new conversations: all of them or, on an error, none."""
        return self._write(lambda c: [conversations.get(c, copies.add(c, value)) for value in values])

    # How it is done

    def _insert(
        self,
        conversation_id: int,
        after: int | None,
        role: str,
        text: str,
        status: str,
        record: Mapping[str, object] | None,
    ) -> Message:
        def operation(c: sqlite3.Connection) -> Message:
            conversation = conversations.get(c, conversation_id)
            parent_id = conversation.leaf_id if after is None else tree.message(c, after).id
            if after is not None and tree.message(c, after).conversation_id != conversation_id:
                raise StoreError(f"message {after} is not of conversation {conversation_id}")
            new = Message(0, conversation_id, parent_id, clean_role(role), clean_text(text), status, record or {}, now)
            return tree.message(c, tree.insert(c, new, own_mark() if status == "streaming" else None))

        now = self._clock()
        return self._write(operation)

    def _insert_beside(self, message_id: int, text: str, status: str, record: Mapping[str, object] | None) -> Message:
        def operation(c: sqlite3.Connection) -> Message:
            of = tree.message(c, message_id)
            new = replace(of, text=clean_text(text), thought="", status=status, record=record or {}, created_at=now)
            return tree.message(c, tree.insert(c, new, own_mark() if status == "streaming" else None))

        now = self._clock()
        return self._write(operation)

    def _writer(self, message: Message) -> MessageWriter:
        return MessageWriter(
            message.id,
            lambda *pieces: self._write(lambda c: answers.append(c, *pieces)),
            lambda *pieces: self._write(lambda c: answers.finish(c, *pieces)),
            self._flusher,
        )

    def _change(self, conversation_id: int, change: Operation[None]) -> Conversation:
        def operation(c: sqlite3.Connection) -> Conversation:
            conversations.get(c, conversation_id)
            change(c)
            next_sequence(c)
            return conversations.get(c, conversation_id)

        return self._write(operation)

    def _catch_up_index(self) -> None:
        if self._read(lambda c: c.execute("SELECT 1 FROM message WHERE indexed = 0 LIMIT 1").fetchone()):
            while self._write(search.index_some):
                pass

    def _renew_backups(self, path: Path) -> None:
        try:
            newest = self._read(lambda c: backups.back_up(c, path, at_once=True))
            backups.forget_older(path, newest)
        except (OSError, StoreError) as error:
            raise StoreError(f"purged, but backups beside {path} still hold what was purged: {error}") from error


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # '~' of a user without a home: a file of that name here, and a notice if that fails
        return path.absolute()
