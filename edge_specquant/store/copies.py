"""A whole conversation as a value: every branch, the branch on show, and the order branches were last seen in.

What is exported and imported. `of` and `add` turn it from and into rows; two copies are equal when nothing was lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import StoreError
from . import conversations
from .records import clean_role, clean_status, clean_text, from_json, to_json
from .schema import next_sequence, sequence_of


@dataclass(frozen=True, slots=True)
class MessageCopy:
    """A message; `parent` is its parent's place in the list, None for a first message. A parent comes first."""

    parent: int | None
    role: str
    text: str
    status: str
    record: Mapping[str, object]
    created_at: float
    seen: int
    """Rank among all messages of the conversation: the highest of some siblings is the one last on show."""


@dataclass(frozen=True, slots=True)
class ConversationCopy:
    """A conversation; `leaf` is the place of the last message on show. StoreError when places do not fit."""

    title: str
    system: str
    preset: Mapping[str, object]
    pinned: bool
    created_at: float
    updated_at: float
    leaf: int | None
    messages: tuple[MessageCopy, ...]

    def __post_init__(self) -> None:
        n_messages = len(self.messages)
        for place, message in enumerate(self.messages):
            if message.parent is not None and not 0 <= message.parent < place:
                raise StoreError(f"message {place} names parent {message.parent}, which does not come before it")
        if (self.leaf is None) != (n_messages == 0) or not 0 <= (self.leaf or 0) <= max(0, n_messages - 1):
            raise StoreError(f"the leaf on show is {self.leaf}, and there are {n_messages} messages")


def of(connection: sqlite3.Connection, conversation_id: int) -> ConversationCopy:
    """Copies a conversation. Deleted branches are left out; an answer still being written counts as interrupted."""
    head = conversations.get(connection, conversation_id)
    rows = connection.execute(
        "SELECT id, parent_id, role, text, status, record, created_at, visited FROM message"
        " WHERE conversation_id = ? AND deletion IS NULL ORDER BY id",
        (conversation_id,),
    ).fetchall()
    places = {row[0]: place for place, row in enumerate(rows)}
    ranks = {row[0]: rank for rank, row in enumerate(sorted(rows, key=lambda row: (row[7], row[0])))}
    messages = tuple(
        MessageCopy(
            None if parent is None else places[parent],
            role,
            text,
            "interrupted" if status == "streaming" else status,
            from_json(record),
            created_at,
            ranks[number],
        )
        for number, parent, role, text, status, record, created_at, _ in rows
    )
    return ConversationCopy(
        head.title,
        head.system,
        head.preset,
        head.pinned,
        head.created_at,
        head.updated_at,
        None if head.leaf_id is None else places[head.leaf_id],
        messages,
    )


def add(connection: sqlite3.Connection, copy: ConversationCopy) -> int:
    """Adds a copy as a new conversation, inside a write transaction. Gives its id."""
    conversation_id = conversations.create(connection, copy.title, copy.system, copy.preset, copy.created_at)
    first_visit = sequence_of(connection)
    connection.execute("UPDATE counter SET value = value + ?", (len(copy.messages),))
    numbers: list[int] = []
    for message in copy.messages:
        cursor = connection.execute(
            "INSERT INTO message"
            " (conversation_id, parent_id, role, text, status, record, created_at, visited)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                conversation_id,
                None if message.parent is None else numbers[message.parent],
                clean_role(message.role),
                clean_text(message.text),
                clean_status(message.status),
                to_json(message.record),
                message.created_at,
                first_visit + message.seen + 1,
            ),
        )
        assert cursor.lastrowid is not None
        numbers.append(cursor.lastrowid)
    connection.execute(
        "UPDATE conversation SET leaf_id = ?, pinned = ?, updated_at = ?, sequence = ? WHERE id = ?",
        (
            None if copy.leaf is None else numbers[copy.leaf],
            copy.pinned,
            copy.updated_at,
            next_sequence(connection),
            conversation_id,
        ),
    )
    return conversation_id
