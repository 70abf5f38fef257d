"""The store's file: made private, opened, checked, moved aside. Knows SQLite's file format, not the tables.

SQLite gives the -wal and -shm files the mode of the main file, so the main file is made 0600 before SQLite sees it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

BUSY_TIMEOUT_S = 5.0
CHECK_LIMIT_S = 2.0
"""A larger file is checked for this long at start and then trusted: a start must stay quick."""

_OUT_OF_ORDER = {
    "damaged": ({11, 26}, ("malformed", "not a database")),
    "unwritable": ({8, 10, 13, 14}, ("readonly", "disk I/O", "is full", "unable to open")),
    "busy": ({5, 6}, ("locked",)),
}
"""Primary result codes of sqlite.org/rescode.html, and words for Python 3.10, which does not tell the code."""


def kind_of(error: sqlite3.Error) -> str:
    """'damaged', 'unwritable', 'busy' or 'other'."""
    code = getattr(error, "sqlite_errorcode", None)
    for kind, (codes, words) in _OUT_OF_ORDER.items():
        if (code & 0xFF) in codes if code is not None else any(word in str(error) for word in words):
            return kind
    return "other"


def connect(path: Path) -> sqlite3.Connection:
    """A read and write connection in WAL mode; the file and a missing folder are made private (0600, 0700)."""
    _make_private(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _to_wal(connection)
        _set_habits(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_memory() -> sqlite3.Connection:
    """An empty database in memory."""
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _set_habits(memory)
    return memory


def connect_reading(source: Path) -> sqlite3.Connection | None:
    """A connection to a file that may be on a read-only disk; None when it cannot be read.

    `immutable` is the second try: on a read-only folder WAL needs files that SQLite may not create.
    """
    for options in ("mode=ro", "mode=ro&immutable=1"):
        try:
            reader = sqlite3.connect(f"file:{quote(str(source))}?{options}", timeout=BUSY_TIMEOUT_S, uri=True)
        except sqlite3.Error:
            continue
        try:
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return reader
        except sqlite3.Error:
            reader.close()
    return None


def check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError (kind 'damaged') when the quick check finds damage within its time."""
    deadline = time.monotonic() + CHECK_LIMIT_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        finding = "ok"  # out of time: nothing was found so far
    finally:
        connection.set_progress_handler(None, 0)
    if finding != "ok":
        raise sqlite3.DatabaseError(f"database disk image is malformed: {finding}")


def move_aside(path: Path) -> Path:
    """Renames a damaged file, with its -wal and -shm, to the first free '<name>.damaged-N'; nothing is deleted."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(kept.with_name(kept.name + suffix))
    return kept


def _make_private(path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if os.name == "posix" and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _to_wal(connection: sqlite3.Connection) -> None:
    """SQLite's own busy wait does not cover the change of mode when two processes make the file at once."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if kind_of(error) != "busy" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _set_habits(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # boards get unplugged; NORMAL would lose minutes
    connection.execute("PRAGMA secure_delete = ON")  # what is purged is overwritten
