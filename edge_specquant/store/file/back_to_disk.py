"""The way back from memory to the file, once the disk has room again or may be written.

When nobody else wrote to the file meanwhile, its rows are made equal to those in memory in one transaction, so every
number stays. When somebody did, the conversations that changed in memory are added beside theirs: nothing is lost.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..rows import copies
from ..rows.tables import version_of
from .files import connect

_COLUMNS = {
    "conversation": "id, title, system, preset, pinned, leaf_id, created_at, updated_at, sequence, deletion",
    "message": "id, conversation_id, parent_id, role, text, status, record, created_at, visited, deletion, writer",
}
"""All columns but `indexed`: what comes home is not in the file's index yet."""


def return_rows(memory: sqlite3.Connection, path: Path, sequence_before: int) -> bool:
    """Makes the file's rows equal to those in memory. False when the file changed since `sequence_before`.

    Raises sqlite3.Error or OSError while the file still cannot be written; it is then as it was.
    """
    connect(path).close()  # makes a missing file, private and in WAL mode, and fails early
    memory.execute("PRAGMA foreign_keys = OFF")  # replacing a conversation's row must not take its messages along
    memory.execute("ATTACH ? AS home", (str(path),))
    try:
        memory.execute("BEGIN IMMEDIATE")
        is_ours = _is_unchanged(memory, sequence_before)
        if is_ours:
            _copy_rows(memory)
        memory.execute("COMMIT")
        return is_ours
    finally:
        if memory.in_transaction:
            memory.execute("ROLLBACK")
        memory.execute("DETACH home")
        memory.execute("PRAGMA foreign_keys = ON")


def add_changed(memory: sqlite3.Connection, file: sqlite3.Connection, sequence_before: int) -> int:
    """Adds to the file what changed in memory, as new conversations. Gives how many."""
    rows = memory.execute(
        "SELECT id FROM conversation WHERE deletion IS NULL AND sequence > ? ORDER BY sequence", (sequence_before,)
    ).fetchall()
    values = [copies.of(memory, int(number)) for (number,) in rows]
    file.execute("BEGIN IMMEDIATE")
    try:
        for value in values:
            copies.add(file, value)
        file.execute("COMMIT")
    finally:
        if file.in_transaction:
            file.execute("ROLLBACK")
    return len(values)


def _is_unchanged(memory: sqlite3.Connection, sequence_before: int) -> bool:
    if memory.execute("PRAGMA home.user_version").fetchone()[0] != version_of(memory):
        return False
    return bool(memory.execute("SELECT value FROM home.counter").fetchone()[0] == sequence_before)


def _copy_rows(memory: sqlite3.Connection) -> None:
    for table, columns in _COLUMNS.items():
        memory.execute(f"DELETE FROM home.{table} WHERE id NOT IN (SELECT id FROM main.{table})")
        memory.execute(
            f"INSERT OR REPLACE INTO home.{table} ({columns})"
            f" SELECT {columns} FROM main.{table} EXCEPT SELECT {columns} FROM home.{table}"
        )
    memory.execute("UPDATE home.counter SET value = (SELECT value FROM main.counter)")
