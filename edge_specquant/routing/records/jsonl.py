"""Files of one JSON object a line: read all, append one.

A last line cut short by a crash is passed over; any other bad line is an error that names it. Knows no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import FileError


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each non-empty line. Raises FileError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text (byte {error.start})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # no newline after it: the writer was stopped
                return
            raise FileError(f"{path}, line {number} is not JSON ({error}); one object a line is expected") from error
        if not isinstance(found, dict):
            raise FileError(f"{path}, line {number} holds no JSON object; one object a line is expected")
        yield number, found


def append_object(path: Path, record: Mapping[str, Any]) -> None:
    """Adds one line in one write, so that two writers do not mix, and after a line cut short. Raises FileError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            line = json.dumps(record, ensure_ascii=True, allow_nan=False) + "\n"
            file.write((b"" if _ends_whole(path) else b"\n") + line.encode("ascii"))
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from error


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"
