"""Small reads from a file tree: takes a root, gives text, numbers or None, and keeps the reason of every None.

Everything that looks at /proc, /sys and /etc goes through here, so that a test can lay out a fake machine in a
folder. Knows nothing of what the values mean. A read that blocks (an i2c sensor, a hung driver) is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

READ_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Missing:
    """A field that could not be read, and why."""

    field: str
    reason: str


@dataclass(slots=True)
class _Outcome(Generic[T]):
    value: T | None = None
    error: Exception | None = None


def within(seconds: float, work: Callable[[], T]) -> T:
    """Runs `work` in a daemon thread; raises TimeoutError when it takes longer, else what it raised itself.

    A thread stuck in a driver cannot be ended; it is left behind and dies with the process.
    """
    outcome: _Outcome[T] = _Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except Exception as error:
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True, name="probe")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:g} s")
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]  # None only where T allows it


class Readings:
    """A tree under `root` and the reasons of what could not be read from it."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self._missing: dict[str, str] = {}

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Every field noted so far."""
        return tuple(Missing(field, reason) for field, reason in self._missing.items())

    def note(self, field: str, reason: str) -> None:
        """Remembers why a field is None; the first reason stays."""
        self._missing.setdefault(field, reason)

    def path(self, name: str) -> Path:
        """A path of the tree, given as it is written on a real machine."""
        return self.root / name.lstrip("/")

    def text(self, name: str, field: str | None = None, *, slow: bool = False) -> str | None:
        """The stripped text of a file (NUL bytes dropped), or None; `field` notes the reason, slow=True guards it."""
        path = self.path(name)
        try:
            data = within(READ_TIMEOUT_S, path.read_bytes) if slow else path.read_bytes()
        except (OSError, TimeoutError) as error:
            if field:
                self.note(field, f"{name}: {_why(error)}")
            return None
        return data.decode("utf-8", "replace").replace("\0", "").strip()

    def number(self, name: str, field: str | None = None, *, slow: bool = False) -> int | None:
        """A file holding one integer, or None."""
        text = self.text(name, field, slow=slow)
        if text is None:
            return None
        try:
            return int(text.split()[0])
        except (ValueError, IndexError):
            if field:
                self.note(field, f"{name}: holds {text[:40]!r}, not a number")
            return None

    def folders(self, pattern: str) -> tuple[str, ...]:
        """Names (as on a real machine) matching a glob such as 'sys/class/thermal/thermal_zone*', in natural order."""
        try:
            found = [path.relative_to(self.root).as_posix() for path in self.root.glob(pattern.lstrip("/"))]
        except OSError:
            return ()
        return tuple(sorted(found, key=lambda name: (len(name), name)))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """'0-3,8' -> (0, 1, 2, 3, 8), the kernel's list format. Raises ValueError."""
    cpus: list[int] = []
    for part in filter(None, text.replace("\n", "").split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def _why(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "not there"
    if isinstance(error, PermissionError):
        return "not readable by this user"
    return str(getattr(error, "strerror", None) or error)
