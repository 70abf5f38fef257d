"""Frames over a pair of pipes: 4 bytes of length, then a pickled list of messages. Both ends are this package.

A frame holds all that was ready, so that a round of several tokens costs one write and one wake-up. Knows no messages.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import threading
from typing import Any

Message = tuple[Any, ...]

_LENGTH = struct.Struct(">I")


class FrameReader:
    """Reads frames from a file descriptor, which it then owns."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb", buffering=1 << 16)

    def read(self) -> list[Message]:
        """The next frame's messages. Raises EOFError when the other end is gone."""
        head = self._file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            raise EOFError("the pipe was closed")
        (n_bytes,) = _LENGTH.unpack(head)
        data = self._file.read(n_bytes)
        if len(data) < n_bytes:
            raise EOFError("the pipe was closed in the middle of a frame")
        messages: list[Message] = pickle.loads(data)
        return messages

    def close(self) -> None:
        """Closes the descriptor."""
        self._file.close()


class FrameWriter:
    """Writes frames to a file descriptor, which it then owns. Any thread may write."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._lock = threading.Lock()

    def write(self, *messages: Message) -> None:
        """Sends one frame. Raises OSError (BrokenPipeError) when the other end is gone."""
        data = pickle.dumps(list(messages), protocol=pickle.HIGHEST_PROTOCOL)
        left = memoryview(_LENGTH.pack(len(data)) + data)
        with self._lock:
            if self._descriptor is None:
                raise BrokenPipeError("the pipe is closed")
            while left:
                left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        """Closes the descriptor; twice is fine."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Outbox:
    """Messages on their way: `put` costs a fraction of a microsecond, a thread writes what has gathered."""

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer
        self._waiting: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Sends a message soon."""
        self._waiting.put(message)

    def close(self) -> None:
        """Sends what has gathered, then ends."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            messages = [message for message in batch if message is not None]
            try:
                if messages:
                    self._writer.write(*messages)
            except OSError:
                return  # the reader is gone, and with it whoever wanted this
            if None in batch:
                return
