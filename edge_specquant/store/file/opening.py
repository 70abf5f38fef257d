"""From a path to a usable connection: checked, recovered when damaged, migrated, backed up, dead writers marked.

When the file cannot be used at all, the caller gets a database in memory and a sentence that says so.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from ...errors import StoreError
from ..rows import answers
from ..rows.tables import VERSION, migrate, version_of
from .backups import back_up, recover
from .files import check, connect, connect_memory, connect_reading, kind_of


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection, whether it is only in memory, and sentences for the user."""

    connection: sqlite3.Connection
    in_memory: bool
    notices: tuple[str, ...] = ()
    may_return: bool = True
    """False when the file is not ours to write, whatever room there is."""


def open_file(path: Path) -> Opened:
    """Opens the store's file, or what can be read of it in memory when it cannot be written. Never raises for that."""
    try:
        connection, notices = _open_sound(path)
    except (OSError, ValueError, sqlite3.Error, StoreError) as error:  # ValueError: a NUL in the path
        source = connect_reading(path)
        opened = open_memory(source)
        if source is not None:
            source.close()
        is_foreign = isinstance(error, (StoreError, ValueError))
        return Opened(opened.connection, True, (memory_notice(path, error),), may_return=not is_foreign)
    return Opened(connection, False, (*notices, *_after_opening(connection, path)))


def open_memory(source: sqlite3.Connection | None = None) -> Opened:
    """A database in memory, with the content of a store when one can be read."""
    memory = connect_memory()
    try:
        if source is not None:
            source.backup(memory)
        migrate(memory)
        answers.mark_interrupted(memory)
    except (sqlite3.Error, StoreError):  # what was read is damaged, or is not a store of ours
        memory.close()
        memory = connect_memory()
        migrate(memory)
    return Opened(memory, True)


def memory_notice(path: Path | None, reason: Exception) -> str:
    """The sentence for a store that had to move to memory."""
    return (
        f"Conversations are kept in memory only and end with this session: {path} cannot be used ({reason}). "
        "Free some space or make the file writable, and they go back to it; or name another file with store.path."
    )


def _open_sound(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """A migrated connection to a sound file. A damaged one is replaced once; another process may be quicker."""
    notices: tuple[str, ...] = ()
    for _ in range(3):
        identity = _identity(path)
        try:
            return _connect_checked(path), notices
        except sqlite3.DatabaseError as error:
            if kind_of(error) != "damaged":
                raise
        if identity == _identity(path):
            notices = (recover(path),)
    return _connect_checked(path), notices


def _connect_checked(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    try:
        known = version_of(connection)
        check(connection)
        if 0 < known < VERSION:
            back_up(connection, path, at_once=True)
        if known < VERSION:
            migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _after_opening(connection: sqlite3.Connection, path: Path) -> tuple[str, ...]:
    """Marks what dead writers left, then takes today's copy. A store that opens must not fail for these."""
    try:
        if answers.has_streaming(connection):
            connection.execute("BEGIN IMMEDIATE")
            answers.mark_interrupted(connection)
            connection.execute("COMMIT")
        back_up(connection, path)
    except (OSError, sqlite3.Error, StoreError) as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return (f"The conversation store could not be backed up: {error}.",)
    return ()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)
