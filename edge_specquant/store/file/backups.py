"""Copies of the store, taken at start, and the way back from a damaged file.

A copy is taken when the newest is a day old and the store changed since; the last three are kept. Its name holds the
store's own count of changes, so that neither "newest" nor "changed" depends on a clock. Knows no tables but that count.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from pathlib import Path

from ...errors import StoreError
from ..rows.tables import sequence_of, version_of
from .files import check, kind_of, move_aside

N_KEPT = 3
INTERVAL_S = 24 * 3600.0


def backups_of(path: Path) -> list[Path]:
    """The copies of this store, newest first."""
    name = re.compile(re.escape(path.stem) + r"-\d{12}" + re.escape(path.suffix))
    folder = _folder(path)
    found = [entry for entry in folder.iterdir() if name.fullmatch(entry.name)] if folder.is_dir() else []
    return sorted(found, reverse=True)


def back_up(connection: sqlite3.Connection, path: Path, *, at_once: bool = False) -> Path | None:
    """Takes a copy when one is due, or when the store changed at all (`at_once`). None when it was not.

    Raises StoreError or OSError when the copy cannot be written; the older copies are then all still there.
    """
    kept = backups_of(path)
    target = _folder(path) / f"{path.stem}-{sequence_of(connection):012d}{path.suffix}"
    if target in kept or sequence_of(connection) == 0:
        return None
    if kept and not at_once and 0 <= time.time() - kept[0].stat().st_mtime < INTERVAL_S:
        return None
    _folder(path).mkdir(mode=0o700, exist_ok=True)
    try:
        _copy(connection, target)
    except sqlite3.Error as error:
        raise StoreError(f"the copy {target} cannot be written: {error}") from error
    for old in backups_of(path)[N_KEPT:]:
        old.unlink(missing_ok=True)
    return target


def forget_older(path: Path, newest: Path | None) -> None:
    """Removes every copy but the one named: after a purge no copy may hold what was purged."""
    for old in backups_of(path):
        if old != newest:
            old.unlink(missing_ok=True)


def recover(path: Path) -> str:
    """Moves a damaged store aside and puts the newest good copy in its place. One sentence for the user."""
    kept = move_aside(path)
    for backup in backups_of(path):
        if _is_good(backup):
            temporary = _temporary(path)
            shutil.copyfile(backup, temporary)
            _settle(temporary, path)
            return (
                f"The conversation store was damaged: it is kept as {kept}, and the copy of "
                f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(backup.stat().st_mtime))} was put in its place."
            )
        backup.replace(backup.with_name(f"damaged-{backup.name}"))
    return f"The conversation store was damaged: it is kept as {kept}, and there is no good copy, so a new one begins."


def _folder(path: Path) -> Path:
    return path.with_name("backups")


def _temporary(target: Path) -> Path:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return temporary


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    temporary = _temporary(target)
    try:
        copy = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm beside it
        finally:
            copy.close()
        _settle(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _settle(temporary: Path, target: Path) -> None:
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(target)


def _is_good(backup: Path) -> bool:
    connection = sqlite3.connect(backup, isolation_level=None)
    try:
        check(connection)
        return version_of(connection) > 0
    except StoreError:
        return False
    except sqlite3.Error as error:
        if kind_of(error) == "damaged":
            return False
        raise
    finally:
        connection.close()
