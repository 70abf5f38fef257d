"""A log file that stays small: at its limit it becomes `name.1`, the one before `name.2`, and a new one begins.

Several processes may append to the same file. A disk that refuses costs log lines, never the work. Knows no engine.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import IO

MAX_BYTES = 2 << 20
N_KEPT = 2


class LogFile:
    """Appends text; private to the user (0600). Raises OSError when it cannot be opened at first."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, n_kept: int = N_KEPT) -> None:
        self.path = path
        self._max_bytes, self._n_kept = max_bytes, n_kept
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rotate_if_full()
        self._file: IO[str] | None = self._open()

    def write(self, text: str) -> None:
        """Adds text and flushes; after a refused write nothing more is tried."""
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(text)
                self._file.flush()
                if self._file.tell() >= self._max_bytes:
                    self._file.close()
                    self._rotate_if_full()
                    self._file = self._open()
            except OSError:
                self._close()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        opened, self._file = self._file, None
        if opened:
            with contextlib.suppress(OSError):  # what a full disk did not take is lost
                opened.close()

    def _open(self) -> IO[str]:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")

    def _rotate_if_full(self) -> None:
        """Renames; where another process has the file open and renaming is refused (Windows), it grows on."""
        with contextlib.suppress(OSError):
            if self.path.stat().st_size < self._max_bytes:
                return
            for number in range(self._n_kept, 0, -1):
                older = self._numbered(number - 1)
                if older.exists():
                    older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path
