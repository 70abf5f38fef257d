"""Where the logs go: rotating files in the logs folder, never the screen. Prompts are not logged unless asked for.

The engine's own lines and those of the process it runs in go to `engine.log`; a front end's to `edge_specquant.log`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from .. import config
from ..native.library.log_file import LogFile

logger = logging.getLogger("edge_specquant")
logger.addHandler(logging.NullHandler())  # without a file nothing is said: not even by logging's last resort

ENGINE_LOG = "engine.log"
FRONT_END_LOG = "edge_specquant.log"


def engine_log_path() -> Path:
    """The log of the engine, which a message about its death points to."""
    return config.logs_dir() / ENGINE_LOG


def log_here(name: str, *, native: bool, debug: bool = False) -> str | None:
    """Sends Python's log, and the engine's if native, to this file of the logs folder. Gives a notice if it cannot."""
    path = config.logs_dir() / name
    try:
        handler = _FileHandler(path)
        if native:
            from ..native.library.library import log_sink

            log_sink.to_file(path)
    except OSError as error:
        return f"there is no log: {path} cannot be written ({error.strerror or error})"
    for old in [old for old in logger.handlers if isinstance(old, _FileHandler)]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False
    return None


class _FileHandler(logging.Handler):
    """Python's log into a LogFile."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = LogFile(path)
        self.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        self._file.write(self.format(record) + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()
