"""The rows of conversations in SQL: make, list, change, delete, bring back, purge.

Knows messages only as rows to count. Takes an open connection, inside a transaction where it writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from ...errors import StoreError
from ..records import Conversation, clean_text, from_json, to_json
from .tables import next_sequence

_SELECT = """SELECT id, title, system, preset, pinned, leaf_id, created_at, updated_at, deletion IS NOT NULL,
    (SELECT count(*) FROM message m WHERE m.conversation_id = c.id AND m.deletion IS NULL)
    FROM conversation c"""


def create(connection: sqlite3.Connection, title: str, system: str, preset: Mapping[str, object], now: float) -> int:
    """A new conversation without messages. Gives its id."""
    cursor = connection.execute(
        "INSERT INTO conversation (title, system, preset, created_at, updated_at, sequence) VALUES (?, ?, ?, ?, ?, ?)",
        (clean_text(title), clean_text(system), to_json(preset), now, now, next_sequence(connection)),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def get(connection: sqlite3.Connection, conversation_id: int, *, deleted: bool = False) -> Conversation:
    """One conversation, or StoreError; a deleted one only when asked for."""
    row = connection.execute(f"{_SELECT} WHERE id = ?", (conversation_id,)).fetchone()
    if row is None or (row[8] and not deleted):
        raise StoreError(f"there is no conversation {conversation_id}")
    return _as_conversation(row)


def listing(connection: sqlite3.Connection, *, deleted: bool, limit: int | None) -> list[Conversation]:
    """Pinned ones first, then the last used first."""
    rows = connection.execute(
        f"{_SELECT} WHERE (deletion IS NOT NULL) = ? ORDER BY pinned DESC, sequence DESC LIMIT ?",
        (deleted, -1 if limit is None else limit),
    )
    return [_as_conversation(row) for row in rows]


def set_title(connection: sqlite3.Connection, conversation_id: int, title: str) -> None:
    """Another title."""
    connection.execute("UPDATE conversation SET title = ? WHERE id = ?", (clean_text(title), conversation_id))


def set_system(connection: sqlite3.Connection, conversation_id: int, system: str) -> None:
    """Another system prompt."""
    connection.execute("UPDATE conversation SET system = ? WHERE id = ?", (clean_text(system), conversation_id))


def set_preset(connection: sqlite3.Connection, conversation_id: int, preset: Mapping[str, object]) -> None:
    """Another preset: plain settings that this conversation keeps."""
    connection.execute("UPDATE conversation SET preset = ? WHERE id = ?", (to_json(preset), conversation_id))


def set_pinned(connection: sqlite3.Connection, conversation_id: int, pinned: bool) -> None:
    """Pinned conversations are listed first."""
    connection.execute("UPDATE conversation SET pinned = ? WHERE id = ?", (pinned, conversation_id))


def delete(connection: sqlite3.Connection, conversation_id: int) -> None:
    """Hides a conversation until it is brought back or purged."""
    connection.execute(
        "UPDATE conversation SET deletion = ? WHERE id = ? AND deletion IS NULL",
        (next_sequence(connection), conversation_id),
    )


def restore(connection: sqlite3.Connection, conversation_id: int) -> None:
    """Brings a deleted conversation back as it was."""
    get(connection, conversation_id, deleted=True)
    next_sequence(connection)
    connection.execute("UPDATE conversation SET deletion = NULL WHERE id = ?", (conversation_id,))


def purge(connection: sqlite3.Connection) -> int:
    """Removes for good all that was deleted. Gives how many conversations and messages went."""
    n_removed = _purged(connection, "DELETE FROM message WHERE deletion IS NOT NULL")
    n_removed += _purged(
        connection,
        "DELETE FROM message WHERE conversation_id IN (SELECT id FROM conversation WHERE deletion IS NOT NULL)",
    )
    n_removed += _purged(connection, "DELETE FROM conversation WHERE deletion IS NOT NULL")
    next_sequence(connection)
    return n_removed


def _purged(connection: sqlite3.Connection, statement: str) -> int:
    return connection.execute(statement).rowcount


def _as_conversation(row: tuple[object, ...]) -> Conversation:
    number, title, system, preset, pinned, leaf, created_at, updated_at, deleted, n_messages = row
    assert isinstance(number, int) and isinstance(n_messages, int)
    assert isinstance(created_at, float) and isinstance(updated_at, float)
    return Conversation(
        number,
        str(title),
        str(system),
        from_json(str(preset)),
        bool(pinned),
        leaf if isinstance(leaf, int) else None,
        created_at,
        updated_at,
        bool(deleted),
        n_messages,
    )
