"""The JSON document of a bench: what ran where, every run, and the summaries. One line, unknown is null.

Takes results, gives a dictionary and writes it; reads it back for `bench compare`. Knows no tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from ...errors import FileError
from ...gguf.format.atomic import write_text_whole

VERSION = 1


def make_document(kind: str, **parts: Any) -> dict[str, Any]:
    """kind names the bench ("speculation", "ablation" ...); parts may hold dataclasses, tuples and NaN."""
    return {"bench": kind, "version": VERSION, **{name: plain(value) for name, value in parts.items()}}


def plain(value: Any) -> Any:
    """The value as JSON knows it; numbers that are not finite become None, figures keep six digits."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def one_line(document: Mapping[str, Any]) -> str:
    """Compact JSON."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Writes it whole. Raises FileError."""
    write_text_whole(path, one_line(document) + "\n")


def read_document(path: Path) -> dict[str, Any]:
    """Reads what a bench printed: the last line that is a document, so that whole logs work too. Raises FileError."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    for line in reversed(lines):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and "bench" in found:
                return found
    raise FileError(f"{path} holds no document of a bench; give the file that --out wrote, or the bench's output")
