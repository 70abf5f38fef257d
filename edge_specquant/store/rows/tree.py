"""The tree of messages in SQL: insert, path, siblings, choose, delete, restore.

Takes an open connection, inside a transaction where it writes. Order comes from ids and the file's own sequence,
never from a clock. Law: on the current path every message has the highest `visited` among its siblings, so walking
down the highest ones from any message finds the branch that was last on show there.
"""

from __future__ import annotations

import sqlite3

from ...errors import StoreError
from ..records import Message, from_json, to_json
from .tables import next_sequence

_COLUMNS = "id, conversation_id, parent_id, role, text, status, record, created_at, thought"
_UP = """WITH RECURSIVE up(id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM message WHERE id = ?
    UNION ALL SELECT m.id, m.parent_id, depth + 1 FROM message m JOIN up ON m.id = up.parent_id)"""
_DOWN = """WITH RECURSIVE down(id) AS (
    SELECT ? UNION ALL SELECT m.id FROM message m JOIN down ON m.parent_id = down.id)"""


def as_message(row: tuple[object, ...]) -> Message:
    """A message from its columns, in the order of `_COLUMNS`."""
    number, conversation, parent, role, text, status, record, created_at, thought = row
    assert isinstance(number, int) and isinstance(conversation, int) and isinstance(created_at, float)
    parent_id = parent if isinstance(parent, int) else None
    record_values = from_json(str(record))
    head = (number, conversation, parent_id, str(role), str(text), str(status))
    return Message(*head, record_values, created_at, str(thought))


def message(connection: sqlite3.Connection, message_id: int) -> Message:
    """One message that is not deleted, or StoreError."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM message WHERE id = ? AND deletion IS NULL", (message_id,)
    ).fetchone()
    if row is None:
        raise StoreError(f"there is no message {message_id}")
    return as_message(row)


def messages(connection: sqlite3.Connection, conversation_id: int) -> list[Message]:
    """All messages of all branches, oldest first: a parent always comes before its children."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM message WHERE conversation_id = ? AND deletion IS NULL ORDER BY id",
        (conversation_id,),
    )
    return [as_message(row) for row in rows]


def path(connection: sqlite3.Connection, leaf_id: int | None) -> list[Message]:
    """From the first message down to `leaf_id`; empty for None."""
    columns = ", ".join(f"m.{name}" for name in _COLUMNS.split(", "))
    rows = connection.execute(
        f"{_UP} SELECT {columns} FROM up JOIN message m ON m.id = up.id ORDER BY depth DESC", (leaf_id,)
    )
    return [as_message(row) for row in rows]


def siblings(connection: sqlite3.Connection, of: Message) -> list[Message]:
    """The message and those beside it, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM message WHERE conversation_id = ? AND parent_id IS ? AND deletion IS NULL ORDER BY id",
        (of.conversation_id, of.parent_id),
    )
    return [as_message(row) for row in rows]


def insert(connection: sqlite3.Connection, new: Message, writer: str | None) -> int:
    """Adds a message (its `id` is ignored) and makes it the leaf on show. Gives its id."""
    was_leaf = _leaf(connection, new.conversation_id)
    cursor = connection.execute(
        "INSERT INTO message (conversation_id, parent_id, role, text, status, record, created_at, visited, writer)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.conversation_id,
            new.parent_id,
            new.role,
            new.text,
            new.status,
            to_json(new.record),
            new.created_at,
            next_sequence(connection),
            writer,
        ),
    )
    number = cursor.lastrowid
    assert number is not None
    connection.execute("UPDATE conversation SET updated_at = ? WHERE id = ?", (new.created_at, new.conversation_id))
    # Below the leaf on show, the path above was visited already: a long conversation is not rewritten each turn.
    _visit(connection, new.conversation_id, number, whole_path=new.parent_id != was_leaf)
    return number


def show(connection: sqlite3.Connection, message_id: int) -> int:
    """Puts the branch through this message on show, down to where it was last left. Gives the leaf's id."""
    of = message(connection, message_id)
    leaf_id = _deepest(connection, message_id)
    _visit(connection, of.conversation_id, leaf_id)
    return leaf_id


def delete_branch(connection: sqlite3.Connection, of: Message) -> None:
    """Hides a message and all below it; the leaf on show moves to the sibling last seen, or to the parent."""
    stamp = next_sequence(connection)
    connection.execute(
        f"{_DOWN} UPDATE message SET deletion = ? WHERE deletion IS NULL AND id IN (SELECT id FROM down)",
        (of.id, stamp),
    )
    leaf_id = _leaf(connection, of.conversation_id)
    if leaf_id is None or not _is_deleted(connection, leaf_id):
        return
    beside = _last_seen_child(connection, of.conversation_id, of.parent_id)
    new_leaf = of.parent_id if beside is None else _deepest(connection, beside)
    _visit(connection, of.conversation_id, new_leaf)


def restore_branch(connection: sqlite3.Connection, conversation_id: int, message_id: int) -> None:
    """Undoes one `delete_branch`: what that deletion hid appears again, what others hid stays hidden."""
    row = connection.execute(
        "SELECT deletion, parent_id FROM message WHERE id = ? AND conversation_id = ?",
        (message_id, conversation_id),
    ).fetchone()
    if row is None or row[0] is None:
        raise StoreError(f"there is no deleted message {message_id} to bring back")
    if row[1] is not None and _is_deleted(connection, row[1]):
        raise StoreError(f"message {message_id} hangs below a deleted one; bring back message {row[1]} first")
    connection.execute(
        "UPDATE message SET deletion = NULL WHERE conversation_id = ? AND deletion = ?", (conversation_id, row[0])
    )


def show_again(connection: sqlite3.Connection, conversation_id: int, leaf_id: int | None) -> None:
    """Puts a leaf on show once more, if it is still there."""
    if leaf_id is not None and not _is_deleted(connection, leaf_id):
        _visit(connection, conversation_id, _deepest(connection, leaf_id))


def _visit(
    connection: sqlite3.Connection, conversation_id: int, leaf_id: int | None, *, whole_path: bool = True
) -> None:
    sequence = next_sequence(connection)
    if whole_path:
        connection.execute(f"{_UP} UPDATE message SET visited = ? WHERE id IN (SELECT id FROM up)", (leaf_id, sequence))
    connection.execute(
        "UPDATE conversation SET leaf_id = ?, sequence = ? WHERE id = ?", (leaf_id, sequence, conversation_id)
    )


def _deepest(connection: sqlite3.Connection, message_id: int) -> int:
    conversation_id = message(connection, message_id).conversation_id
    while (child := _last_seen_child(connection, conversation_id, message_id)) is not None:
        message_id = child
    return message_id


def _last_seen_child(connection: sqlite3.Connection, conversation_id: int, parent_id: int | None) -> int | None:
    row = connection.execute(
        "SELECT id FROM message WHERE conversation_id = ? AND parent_id IS ? AND deletion IS NULL"
        " ORDER BY visited DESC, id DESC LIMIT 1",
        (conversation_id, parent_id),
    ).fetchone()
    return None if row is None else int(row[0])


def _leaf(connection: sqlite3.Connection, conversation_id: int) -> int | None:
    row = connection.execute("SELECT leaf_id FROM conversation WHERE id = ?", (conversation_id,)).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _is_deleted(connection: sqlite3.Connection, message_id: int) -> bool:
    row = connection.execute("SELECT deletion FROM message WHERE id = ?", (message_id,)).fetchone()
    return row is None or row[0] is not None
