"""KV snapshots on disk: one file a branch, bound to model, cache format and token ids, in a byte budget.

Layout: magic, header length (8 bytes), header (JSON), tokens (int32), cells. The SHA-256 of tokens and cells is in the
header, so that the engine is never given bytes it did not write. Knows nothing of caches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...errors import FileError
from ...gguf.format.atomic import written_whole

_MAGIC = b"ESQ-KV1\n"
_MAX_HEADER_BYTES = 4096
_SUFFIX = ".kv"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file whose tokens share `n_usable` with what is wanted; `load` reads and proves the whole of it."""

    n_usable: int
    load: Callable[[], tuple[Sequence[int], NDArray[np.uint8]] | None]


class SnapshotFiles:
    """The snapshots of one model in one folder. model_key names weights, cache types and engine build.

    A file that is broken or another model's is passed over; `take_notices` says so once.
    """

    def __init__(self, folder: Path, model_key: str, budget: int) -> None:
        self._folder = folder
        self._model_key = model_key
        self._budget = budget
        self._notices: list[str] = []
        self._passed_over: set[Path] = set()

    def best(self, usable: Callable[[NDArray[np.int32]], int]) -> Candidate | None:
        """The file with the most usable tokens, or None."""
        found: list[tuple[int, Path]] = []
        for path in self._paths():
            tokens = self._read_tokens(path)
            if tokens is not None:
                found.append((usable(tokens), path))
        if not found:
            return None
        n_usable, path = max(found)
        return Candidate(n_usable, lambda: self._read(path)) if n_usable else None

    def write(self, tokens: NDArray[np.int32], state: NDArray[np.uint8]) -> None:
        """Keeps a snapshot, then drops the oldest files above the budget; a disk that refuses is a notice."""
        path = self._folder / f"{hashlib.sha256(self._model_key.encode() + tokens.tobytes()).hexdigest()[:32]}{_SUFFIX}"
        if path.exists() or tokens.nbytes + state.nbytes > self._budget:
            return
        header = {
            "model": self._model_key,
            "n_tokens": int(tokens.size),
            "n_bytes": int(state.size),
            "sha256": _digest(tokens, state),
        }
        encoded = json.dumps(header).encode()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(tokens.nbytes + state.nbytes)
            with written_whole(path) as partial, _create_private(partial) as file:
                file.write(_MAGIC + len(encoded).to_bytes(8, "little") + encoded)
                file.write(tokens.tobytes())
                file.write(state.data)
        except (OSError, FileError) as error:
            self._notices.append(f"a KV snapshot was not written to {self._folder}: {error}")

    def take_notices(self) -> list[str]:
        """What went wrong since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def _paths(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(path for path in self._folder.glob(f"*{_SUFFIX}") if path not in self._passed_over)
        return []

    def _make_room(self, n_bytes: int) -> None:
        sizes = {path: path.stat() for path in self._paths()}
        total = sum(stat.st_size for stat in sizes.values()) + n_bytes
        for path in sorted(sizes, key=lambda path: sizes[path].st_mtime_ns):
            if total <= self._budget:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path].st_size

    def _read_tokens(self, path: Path) -> NDArray[np.int32] | None:
        try:
            with path.open("rb") as file:
                header = self._header(file.read(len(_MAGIC) + 8 + _MAX_HEADER_BYTES))
                n_tokens, n_bytes = header["n_tokens"], header["n_bytes"]
                if header["model"] != self._model_key:
                    raise ValueError("it belongs to another model or engine")
                if path.stat().st_size != header["start"] + 4 * n_tokens + n_bytes:
                    raise ValueError("it is not whole")
                file.seek(header["start"])
                return np.frombuffer(file.read(4 * n_tokens), dtype=np.int32)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._pass_over(path, error)
            return None

    def _read(self, path: Path) -> tuple[Sequence[int], NDArray[np.uint8]] | None:
        try:
            data = path.read_bytes()
            header = self._header(data)
            n_head = header["start"] + 4 * header["n_tokens"]
            tokens = np.frombuffer(data[header["start"] : n_head], dtype=np.int32)
            state = np.frombuffer(data, dtype=np.uint8, offset=n_head).copy()
            if _digest(tokens, state) != header["sha256"]:
                raise ValueError("its bytes were changed")
            os.utime(path)
            return tokens.tolist(), state
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._pass_over(path, error)
            return None

    def _header(self, data: bytes) -> dict[str, Any]:
        """The header's fields, and "start": where the tokens begin. Raises ValueError, KeyError."""
        if not data.startswith(_MAGIC):
            raise ValueError("it is no KV snapshot")
        start = len(_MAGIC) + 8
        n_header = int.from_bytes(data[len(_MAGIC) : start], "little")
        if n_header > _MAX_HEADER_BYTES:
            raise ValueError("its header is too long")
        header = json.loads(data[start : start + n_header])
        return {**header, "start": start + n_header}

    def _pass_over(self, path: Path, error: Exception) -> None:
        self._passed_over.add(path)
        self._notices.append(f"the KV snapshot {path.name} is not used: {error}")


def _create_private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600), "wb")


def _digest(tokens: NDArray[np.int32], state: NDArray[np.uint8]) -> str:
    whole = hashlib.sha256(tokens.tobytes())
    whole.update(state.data)
    return whole.hexdigest()
