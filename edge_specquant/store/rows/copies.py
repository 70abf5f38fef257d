"""A whole conversation as a value: every branch, the branch on show, and which version of a message was seen last.

What is exported and imported. `of` and `add` turn it from and into rows; two copies are equal when nothing was lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import StoreError
from ..records import clean_role, clean_status, clean_text, from_json, to_json
from . import conversations, tree
from .tables import sequence_of


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
    """Rank among its siblings: the highest was last on show."""
    thought: str = ""


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


def without_thoughts(copy: ConversationCopy) -> ConversationCopy:
    """The same without what models thought, the token ids of it included."""
    return replace(copy, messages=tuple(_answer_alone(message) for message in copy.messages))


def _answer_alone(message: MessageCopy) -> MessageCopy:
    record, tokens = dict(message.record), message.record.get("tokens")
    n_thought = record.pop("n_thought", None)
    if isinstance(n_thought, int) and isinstance(tokens, list):
        record["tokens"] = tokens[n_thought:]
    return replace(message, thought="", record=record)


def of(connection: sqlite3.Connection, conversation_id: int) -> ConversationCopy:
    """Copies a conversation. Deleted branches are left out; an answer still being written counts as interrupted."""
    head = conversations.get(connection, conversation_id)
    rows = connection.execute(
        "SELECT id, parent_id, role, text, status, record, created_at, visited, thought FROM message"
        " WHERE conversation_id = ? AND deletion IS NULL ORDER BY id",
        (conversation_id,),
    ).fetchall()
    places = {row[0]: place for place, row in enumerate(rows)}
    ranks = _ranks([(row[1], row[7]) for row in rows])
    messages = tuple(
        MessageCopy(
            None if parent is None else places[parent],
            role,
            text,
            "interrupted" if status == "streaming" else status,
            from_json(record),
            created_at,
            ranks[places[number]],
            thought,
        )
        for number, parent, role, text, status, record, created_at, _, thought in rows
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
    ranks = _ranks([(message.parent, message.seen) for message in copy.messages])
    first_visit = sequence_of(connection)
    connection.execute("UPDATE counter SET value = value + ?", (len(copy.messages),))
    numbers: list[int] = []
    for message, rank in zip(copy.messages, ranks, strict=True):
        cursor = connection.execute(
            "INSERT INTO message"
            " (conversation_id, parent_id, role, text, status, record, created_at, visited, thought)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                conversation_id,
                None if message.parent is None else numbers[message.parent],
                clean_role(message.role),
                clean_text(message.text),
                clean_status(message.status),
                to_json(message.record),
                message.created_at,
                first_visit + rank + 1,
                clean_text(message.thought),
            ),
        )
        assert cursor.lastrowid is not None
        numbers.append(cursor.lastrowid)
    tree.show_again(connection, conversation_id, None if copy.leaf is None else numbers[copy.leaf])
    connection.execute(
        "UPDATE conversation SET pinned = ?, updated_at = ? WHERE id = ?",
        (copy.pinned, copy.updated_at, conversation_id),
    )
    return conversation_id


def _ranks(seen: Sequence[tuple[int | None, int]]) -> list[int]:
    """From (parent, when seen) of each message, its rank among the children of the same parent."""
    ranks = [0] * len(seen)
    n_ranked: dict[int | None, int] = {}
    for place in sorted(range(len(seen)), key=lambda place: seen[place][1]):  # stable: ties keep their order
        parent = seen[place][0]
        ranks[place] = n_ranked.get(parent, 0)
        n_ranked[parent] = ranks[place] + 1
    return ranks
