"""The tables, step by step: a new file runs every step, an older file the steps it lacks.

A step is never edited once released; a new need is a new step. The full-text index is not part of a step: it is
made from the messages when it is missing (see search.py), so a Python without FTS5 opens the same file.
"""

from __future__ import annotations

import sqlite3

from ...errors import StoreError

APPLICATION_ID = 0x65737101
"""Marks a SQLite file as ours ('esq' and a digit), so that a stranger's file is never touched."""

_STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE conversation (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL,
            system TEXT NOT NULL,
            preset TEXT NOT NULL,
            pinned INTEGER NOT NULL DEFAULT 0,
            leaf_id INTEGER,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            sequence INTEGER NOT NULL,
            deletion INTEGER)""",
        # No cascade from parent to child: SQLite limits it to 1000 levels, and conversations go deeper.
        """CREATE TABLE message (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
            parent_id INTEGER REFERENCES message(id),
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            status TEXT NOT NULL,
            record TEXT NOT NULL,
            created_at REAL NOT NULL,
            visited INTEGER NOT NULL,
            deletion INTEGER,
            writer TEXT)""",
        "CREATE INDEX message_of_conversation ON message(conversation_id)",
        "CREATE INDEX message_of_parent ON message(parent_id)",
        "CREATE TABLE counter (value INTEGER NOT NULL)",
        "INSERT INTO counter VALUES (0)",
    ),
    (
        "ALTER TABLE message ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX message_not_indexed ON message(id) WHERE indexed = 0",
        "CREATE INDEX message_streaming ON message(id) WHERE status = 'streaming'",
    ),
    ("ALTER TABLE message ADD COLUMN thought TEXT NOT NULL DEFAULT ''",),
)

VERSION = len(_STEPS)


def version_of(connection: sqlite3.Connection) -> int:
    """Steps this file has run; 0 for an empty one. StoreError for a foreign file or one from a newer release."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    n_tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if n_tables and application != APPLICATION_ID:
        raise StoreError("the file is a SQLite database of another program; name another file for the store")
    if version > VERSION:
        raise StoreError(
            f"the file has schema version {version} and this release knows {VERSION}; "
            "upgrade edge-specquant, or name another file for the store"
        )
    return version


def migrate(connection: sqlite3.Connection) -> None:
    """Runs the missing steps in one transaction; two processes at once: the second finds nothing to do."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(version_of(connection), VERSION):
            for statement in _STEPS[number]:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def statements_up_to(version: int) -> tuple[str, ...]:
    """The statements that make a file of an older version: for tests of the migrations."""
    made = tuple(statement for step in _STEPS[:version] for statement in step)
    return (*made, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}")


def next_sequence(connection: sqlite3.Connection) -> int:
    """The next number of the file's own count, inside a write transaction: the order that no clock can break."""
    connection.execute("UPDATE counter SET value = value + 1")
    return sequence_of(connection)


def sequence_of(connection: sqlite3.Connection) -> int:
    """How many changes this file has seen."""
    return int(connection.execute("SELECT value FROM counter").fetchone()[0])
