"""The server's log on standard error: one line an entry, whatever characters are in it."""

from __future__ import annotations

import logging
import sys
from typing import TextIO


class OneLine(logging.Formatter):
    """Shows control characters as escapes, so that no text from outside can forge a line or steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = super().format(record).split("\n")
        return "\n".join([_shown(first), *(f"    {_shown(line)}" for line in rest)])


def _shown(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def to_stream(stream: TextIO | None = None, level: str = "info") -> None:
    """Sends our log and uvicorn's warnings to a stream (standard error). Replaces what was set before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    for name, least in (("edge_specquant.server", level.upper()), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
