"""One connection that any thread may use: reads and short write transactions, and the move to memory.

Operations are functions of an open connection. When the file can no longer be written, its content is copied to memory
and the operation that failed is done there; when it can be written again, the content goes home.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...errors import StoreError
from ..rows.tables import sequence_of
from .back_to_disk import add_changed, return_rows
from .files import kind_of
from .opening import Opened, memory_notice, open_file, open_memory

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]

RETURN_INTERVAL_S = 30.0

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
        self._sequence_of_file = sequence_of(self._opened.connection)
        self._next_return_s = time.monotonic() + RETURN_INTERVAL_S

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
            result = self._run(lambda connection: _transact(connection, operation))
            if self._is_away and time.monotonic() >= self._next_return_s:
                self.return_to_file()
            return result

    def return_to_file(self, *, at_end: bool = False) -> bool:
        """Tries to bring what is in memory back to the file; tried by itself every half minute, and at the end.

        Only at the end, when no answer is being written, may conversations get new numbers. True when it is done.
        """
        with self._lock:
            self._next_return_s = time.monotonic() + RETURN_INTERVAL_S
            if self.path is None or not self._is_away:
                return False
            memory = self._opened.connection
            try:
                is_home = return_rows(memory, self.path, self._sequence_of_file)
                if not is_home and not at_end:
                    return False
                after = open_file(self.path)
                if not after.in_memory and not is_home:
                    add_changed(memory, after.connection, self._sequence_of_file)
            except (OSError, sqlite3.Error, StoreError):
                return False  # still full or closed: `notice` says so already
            memory.close()
            self._opened = after
            return not after.in_memory

    def close(self) -> None:
        """Closes the file; its -wal and -shm go when no other process has it open."""
        with self._lock:
            self.return_to_file(at_end=True)
            self._opened.connection.close()

    @property
    def _is_away(self) -> bool:
        return self.path is not None and self._opened.in_memory and self._opened.may_return

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
        self._sequence_of_file = sequence_of(after.connection)
        self._next_return_s = time.monotonic() + RETURN_INTERVAL_S

    def _as_store_error(self, error: sqlite3.Error) -> StoreError:
        advice = _ADVICE.get(kind_of(error), "try again; the messages written before are safe")
        return StoreError(f"{self.path or 'the store in memory'}: {error}; {advice}")


def _transact(connection: sqlite3.Connection, operation: Operation[Result]) -> Result:
    if connection.in_transaction:  # left by a Ctrl-C at the worst moment
        connection.execute("ROLLBACK")
    try:
        connection.execute("BEGIN IMMEDIATE")
        result = operation(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some failures end the transaction themselves
            connection.execute("ROLLBACK")
        raise
    return result
