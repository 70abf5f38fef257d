"""Loads llama_cpp once, sends its log to a file, and says which build it is.

Every other module of this folder takes the bindings from here. The log callback is replaced before the first
native call, so that nothing is ever written to the screen.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

from ...errors import EngineMissingError
from .backends import cpu_variant, load_backends
from .log_file import LogFile

# ggml_log_level: debug, and "goes on with the line before".
_LEVEL_DEBUG, _LEVEL_CONTINUED = 1, 5


@functools.cache
def engine() -> ModuleType:
    """The llama_cpp bindings, initialised. Raises EngineMissingError."""
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError, FileNotFoundError) as error:
        raise EngineMissingError(
            f"the engine (llama-cpp-python) cannot be loaded: {error}; run scripts/quickstart, or pip install it again"
        ) from error
    llama_cpp.llama_log_set(_log_callback(), None)
    load_backends(_ggml_of(llama_cpp), _folder_of(llama_cpp))
    llama_cpp.llama_backend_init()
    atexit.register(log_sink.close)
    module: ModuleType = llama_cpp
    return module


@functools.cache
def ggml() -> ctypes.CDLL:
    """libggml as the models use it: its list of backends is theirs. Raises EngineMissingError."""
    return _ggml_of(engine())


def build_id() -> str:
    """Names the installed build: binding version, the CPU variant if there are several, and the instruction sets."""
    variant = cpu_variant(ggml())
    chosen = f", CPU variant {variant}" if variant else ""
    return f"llama-cpp-python {engine().__version__}{chosen}; {system_info()}"


def system_info() -> str:
    """llama.cpp's own line of compiled-in features."""
    text: bytes = engine().llama_print_system_info()
    return text.decode("utf-8", "replace").strip().rstrip("|").strip()


def library_folder() -> Path:
    """Where the shared libraries of the installed engine lie."""
    return _folder_of(engine())


def _ggml_of(bindings: ModuleType) -> ctypes.CDLL:
    """The libggml behind libllama.

    Not the binding's own handle: a wheel holds no links, so libggml.so there is a second copy of libggml.so.0, with a
    list of backends that no model sees. A look-up in libllama goes on in the libraries it is linked to, except on
    Windows, which loads a library once by its name.
    """
    if sys.platform == "win32":
        from llama_cpp import _ggml

        return cast(ctypes.CDLL, _ggml.libggml)
    return cast(ctypes.CDLL, bindings.llama_cpp._lib)


def _folder_of(bindings: ModuleType) -> Path:
    return Path(str(bindings.__file__)).parent / "lib"


class LogSink:
    """Receives every native log line: kept in memory (the last few hundred), and in a file once one is named.

    Listeners see each line too; they must be quick and may be called from native threads.
    """

    MAX_LINES = 400

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._file: LogFile | None = None
        self._listeners: list[Callable[[str], None]] = []

    def write(self, text: str) -> None:
        """Takes one piece of log text."""
        with self._lock:
            self._lines.append(text)
            del self._lines[: -self.MAX_LINES]
            if self._file:
                self._file.write(text)
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(text)

    def to_file(self, path: Path) -> None:
        """Appends from now on to this file too; it rotates. Raises OSError."""
        opened = LogFile(path)
        with self._lock:
            old, self._file = self._file, opened
        if old:
            old.close()

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Adds a listener; returns the function that removes it."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tail(self, n: int = 5) -> str:
        """The last n pieces, joined: what the engine said before it refused."""
        with self._lock:
            return "".join(self._lines[-n:]).strip()

    def errors(self) -> str:
        """The last line that speaks of an error or a failure, or an empty string."""
        with self._lock:
            lines = [line.strip() for line in self._lines]
        return next((line for line in reversed(lines) if "error" in line.lower() or "fail" in line.lower()), "")

    def clear(self) -> None:
        """Forgets the lines in memory."""
        with self._lock:
            self._lines.clear()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with self._lock:
            old, self._file = self._file, None
        if old:
            old.close()


log_sink = LogSink()


@functools.cache
def _log_callback() -> object:
    """The C callback; cached because the engine keeps the pointer for the life of the process."""
    import llama_cpp

    shown = [True]  # the debug lines, a few for each tensor of each model, are left out

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator,unused-ignore]
    def callback(level: int, text: bytes, user_data: object) -> None:
        del user_data
        if level != _LEVEL_CONTINUED:
            shown[0] = level != _LEVEL_DEBUG
        if shown[0]:
            log_sink.write(text.decode("utf-8", "replace"))

    return callback
