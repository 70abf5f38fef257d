"""An answer that is being written, in SQL: add to it, end it, and mark what dead writers left behind.

Takes an open connection inside a write transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from ..records import clean_status, clean_text, to_json
from .process_mark import is_alive, own_mark
from .tables import next_sequence


def append(connection: sqlite3.Connection, message_id: int, text: str, thought: str) -> None:
    """Adds text and thought. Says again who writes, in case another container took this writer for dead.

    A message that was purged meanwhile takes nothing and is no error: its user wanted it gone.
    """
    connection.execute(
        "UPDATE message SET text = text || ?, thought = thought || ?, status = 'streaming', writer = ?, indexed = 0"
        " WHERE id = ?",
        (clean_text(text), clean_text(thought), own_mark(), message_id),
    )


def finish(
    connection: sqlite3.Connection,
    message_id: int,
    text: str,
    thought: str,
    status: str,
    record: Mapping[str, object],
) -> None:
    """Adds the last text and thought and sets how the message ended and how it was made."""
    next_sequence(connection)
    connection.execute(
        "UPDATE message SET text = text || ?, thought = thought || ?, status = ?, record = ?, writer = NULL,"
        " indexed = 0 WHERE id = ?",
        (clean_text(text), clean_text(thought), clean_status(status), to_json(record), message_id),
    )


def has_streaming(connection: sqlite3.Connection) -> bool:
    """Whether any message is being written, by this process or another. A read."""
    return connection.execute("SELECT 1 FROM message WHERE status = 'streaming' LIMIT 1").fetchone() is not None


def mark_interrupted(connection: sqlite3.Connection) -> int:
    """Marks as interrupted what writers that no longer live left unfinished. Gives how many."""
    rows = connection.execute("SELECT id, writer FROM message WHERE status = 'streaming'").fetchall()
    dead = [(number,) for number, writer in rows if writer is None or not is_alive(str(writer))]
    connection.executemany("UPDATE message SET status = 'interrupted', writer = NULL, indexed = 0 WHERE id = ?", dead)
    return len(dead)
