"""An answer being written: tokens gather in memory and go to the file at least every quarter of a second.

`append` costs no disk access, so the file's speed never slows the engine. One thread for each store writes what has
gathered; it lives only while an answer is being written. Knows nothing of SQL: it is given two functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from ..errors import StoreError, UsageError

FLUSH_INTERVAL_S = 0.25
"""A killed process loses what came after the last flush; half of the half second promised, the rest is for the disk."""

Append = Callable[[int, str, str], None]
"""Adds to a message that is being written: (message id, text, thought)."""
Finish = Callable[[int, str, str, str, Mapping[str, object]], None]
"""Adds the last, then sets the status and the record: (message id, text, thought, status, record)."""
Pieces = tuple[str, str]
"""Text and thought."""


class MessageWriter:
    """Writes one message. A context manager: leaving it by an exception ends the message as interrupted or error."""

    def __init__(self, message_id: int, append: Append, finish: Finish, flusher: Flusher) -> None:
        self.message_id = message_id
        self._append, self._finish, self._flusher = append, finish, flusher
        self._waiting: list[Pieces] = []
        self._buffer_lock = threading.Lock()
        self._disk_lock = threading.Lock()  # keeps the flushes in order
        self._ended = False
        flusher.add(self)

    def append(self, text: str, thought: str = "") -> None:
        """Adds text at the end, or to the thought kept beside it; it reaches the file within a quarter of a second."""
        with self._buffer_lock:
            if self._ended:
                raise UsageError(f"message {self.message_id} is finished; nothing can be added")
            self._waiting.append((text, thought))

    def flush(self) -> None:
        """Writes what has gathered. On StoreError (another process holds the file) it is kept for the next time."""
        with self._disk_lock:
            pieces = self._take()
            if not any(pieces):
                return
            try:
                self._append(self.message_id, *pieces)
            except StoreError:
                self._put_back(pieces)
                raise

    def finish(self, record: Mapping[str, object] | None = None, *, status: str = "complete") -> None:
        """Writes the rest, the record and the status. A second call does nothing."""
        with self._buffer_lock:
            if self._ended:
                return
            self._ended = True
        self._flusher.remove(self)
        with self._disk_lock:
            pieces = self._take()
            try:
                self._finish(self.message_id, *pieces, status, record or {})
            except BaseException:
                self._put_back(pieces)
                with self._buffer_lock:
                    self._ended = False
                self._flusher.add(self)
                raise

    def __enter__(self) -> MessageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        elif issubclass(kind, (GeneratorExit, KeyboardInterrupt)):
            self.finish(status="interrupted")
        else:
            self.finish({"error": str(error)}, status="error")

    def _take(self) -> Pieces:
        with self._buffer_lock:
            text, thought = ("".join(piece[i] for piece in self._waiting) for i in (0, 1))
            self._waiting.clear()
        return text, thought

    def _put_back(self, pieces: Pieces) -> None:
        with self._buffer_lock:
            self._waiting.insert(0, pieces)


class Flusher:
    """The thread that flushes open messages every quarter of a second, while there are any."""

    def __init__(self) -> None:
        self._writers: set[MessageWriter] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, writer: MessageWriter) -> None:
        """Flushes this message from now on."""
        with self._lock:
            self._writers.add(writer)
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name="conversation-store", daemon=True)
                self._thread.start()

    def remove(self, writer: MessageWriter) -> None:
        """No longer flushes this message; the thread ends with the last one."""
        with self._lock:
            self._writers.discard(writer)

    def close(self) -> None:
        """Ends every open message as interrupted, then the thread."""
        for writer in self._open_writers():
            writer.finish(status="interrupted")
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while self._goes_on():
            self._wake.wait(FLUSH_INTERVAL_S)
            for writer in self._open_writers():
                try:
                    writer.flush()
                except StoreError:
                    continue  # kept in the writer; tried again next time, and reported by finish()

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._writers or self._wake.is_set():
                self._thread = None
                return False
            return True

    def _open_writers(self) -> list[MessageWriter]:
        with self._lock:
            return list(self._writers)
