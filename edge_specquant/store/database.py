"""One connection that any thread may use: reads and short write transactions, and the move to memory.

Operations are functions of an open connection. When the file can no longer be written, its content is copied to memory
and the operation that failed is done there. Knows no tables.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import StoreError
from .files import kind_of
from .opening import Opened, memory_notice, open_file, open_memory

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]

_ADVICE = {
    "busy": "another process holds it; close that one or try again",
    "damaged": "start again: the newest good copy will be put in its place",
}


class Database:
    """The store's file, or its stand-in in memory (`path` None: in memory by choice)."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._opened = open_memory() if path is None else open_file(path)
        self._lock = threading.RLock()

    @property
    def is_in_memory(self) -> bool:
        """True when nothing is written to a file."""
        return self._opened.in_memory

    @property
    def notice(self) -> str | None:
        """What the user must be told, in sentences; None when all is well."""
        return " ".join(self._opened.notices) or None

    def read(self, operation: Operation[Result]) -> Result:
        """Runs an operation that only reads."""
        with self._lock:
            return self._run(operation)

    def write(self, operation: Operation[Result]) -> Result:
        """Runs an operation in one write transaction: all of it or, on any error, nothing."""
        with self._lock:
            return self._run(lambda connection: _transact(connection, operation))

    def close(self) -> None:
        """Closes the file; its -wal and -shm go when no other process has it open."""
        with self._lock:
            self._opened.connection.close()

    def _run(self, operation: Operation[Result]) -> Result:
        try:
            return operation(self._opened.connection)
        except sqlite3.Error as error:
            if self.is_in_memory or kind_of(error) != "unwritable":
                raise self._as_store_error(error) from error
            self._move_to_memory(error)
        return self._run(operation)

    def _move_to_memory(self, reason: sqlite3.Error) -> None:
        before = self._opened
        after = open_memory(before.connection)
        before.connection.close()
        notices = (*before.notices, memory_notice(self.path, reason))
        self._opened = Opened(after.connection, True, notices)

    def _as_store_error(self, error: sqlite3.Error) -> StoreError:
        advice = _ADVICE.get(kind_of(error), "try again; the messages written before are safe")
        return StoreError(f"{self.path or 'the store in memory'}: {error}; {advice}")


def _transact(connection: sqlite3.Connection, operation: Operation[Result]) -> Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = operation(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some failures end the transaction themselves
            connection.execute("ROLLBACK")
        raise
    return result
