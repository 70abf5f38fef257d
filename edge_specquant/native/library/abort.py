"""A flag that native code reads without entering Python.

llama.cpp asks its abort callback after every graph node, about a thousand times a token; a Python callback there costs
milliseconds. C's `strlen` has the same machine-level signature as `bool callback(void *)`: it reads the first byte of
the flag and returns 0 (go on) for an empty string and 1 (stop) for a one-character string.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from typing import Any

from .library import engine


class AbortFlag:
    """Set from any thread; read by every context made with it."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(b"", 2)
        self.callback = self._native_callback() or self._python_callback()
        self.data = ctypes.cast(self._bytes, ctypes.c_void_p)

    def set(self) -> None:
        """Asks every decode that reads this flag to stop at the next graph node."""
        self._bytes[0] = b"\x01"

    def clear(self) -> None:
        """Lets decodes run again."""
        self._bytes[0] = b"\x00"

    def is_set(self) -> bool:
        """Whether a stop is asked for."""
        return self._bytes[0] != b"\x00"

    def _native_callback(self) -> Any:
        try:
            libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
            return ctypes.cast(libc.strlen, engine().ggml_abort_callback)
        except (OSError, AttributeError, TypeError):
            return None

    def _python_callback(self) -> Any:
        return engine().ggml_abort_callback(lambda _data: self.is_set())
