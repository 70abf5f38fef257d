"""Says whether the installed engine is safe on this processor, and with which setting: `verdict()`.

The engine is tried in a child process (`probe.py`), because nothing in Python can catch a SIGSEGV or SIGILL. First with
repacked weights (`use_extra_bufts`), which are faster; after a crash without. The verdict is cached per engine build
and processor. Never loads the engine into this process.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ...config import cache_dir
from ...errors import EngineMissingError
from ..library.engine_key import engine_key

_TIMEOUT_S = 180.0
_EXIT_MISSING = 3
# How Windows reports what POSIX calls by these names (NTSTATUS).
_WINDOWS_CRASHES = {0xC0000005: "SIGSEGV", 0xC000001D: "SIGILL", 0xC0000409: "SIGABRT"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """safe: the engine may be used, with this use_extra_bufts. tested: the steps taken, in order; reason: one line."""

    safe: bool
    use_extra_bufts: bool
    reason: str
    tested: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """How one child ended. status is None when it hung and was ended; output is what it printed."""

    status: int | None
    output: str

    @property
    def steps(self) -> tuple[str, ...]:
        """What it said it would do, in order."""
        return self._lines("step: ")

    @property
    def problem(self) -> str | None:
        """What went wrong, as a clause, or None."""
        if self.status == 0:
            return None
        at = f" at {self.steps[-1]}" if self.steps else " at its start"
        if self.status is None:
            return f"hung{at}"
        crash = crash_name(self.status)
        if crash:
            return f"died of {crash}{at}"
        said = self._lines("problem: ") or tuple(self.output.strip().splitlines()[-1:])
        return f"failed{at}: {said[-1] if said else f'exit status {self.status}'}"

    def missing(self) -> str | None:
        """Why the engine could not be loaded at all, if that is what happened."""
        said = self._lines("missing: ")
        return said[-1] if self.status == _EXIT_MISSING and said else None

    def _lines(self, prefix: str) -> tuple[str, ...]:
        return tuple(line[len(prefix) :].strip() for line in self.output.splitlines() if line.startswith(prefix))


RunChild = Callable[[bool], Trial]


@functools.cache
def verdict() -> Verdict:
    """The verdict on the installed engine: remembered, read from the cache, or found out now (about two seconds).

    Raises EngineMissingError.
    """
    return cached_verdict(cache_dir() / "selftest" / f"{engine_key()}.json", run_child)


def cached_verdict(path: Path, run: RunChild) -> Verdict:
    """The verdict kept at `path`, or a new one, kept there if it can be. Only a safe one without a hang is kept."""
    kept = _read(path)
    if kept is not None:
        return kept
    trials: list[Trial] = []

    def recorded(use_extra_bufts: bool) -> Trial:
        trials.append(run(use_extra_bufts))
        return trials[-1]

    found = judge(recorded)
    if found.safe and all(trial.status is not None for trial in trials):
        _write(path, found)
    return found


def judge(run: RunChild) -> Verdict:
    """Tries with repacked weights, then without. Raises EngineMissingError."""
    fast = run(True)
    if (missing := fast.missing()) is not None:
        raise EngineMissingError(missing)
    if fast.problem is None:
        return Verdict(True, True, "all weight types work, repacked weights included", fast.steps)
    plain = run(False)
    steps = fast.steps + plain.steps
    if plain.problem is None:
        return Verdict(True, False, f"repacked weights are off, because with them the engine {fast.problem}", steps)
    reason = (
        f"the engine {fast.problem}; without repacked weights it {plain.problem}. "
        "Build it for this processor: scripts/quickstart --rebuild"
    )
    return Verdict(False, False, reason, steps)


def run_child(use_extra_bufts: bool) -> Trial:
    """Runs the probe in a child process of the same Python."""
    return run_command([sys.executable, "-m", f"{__package__}.probe", str(int(use_extra_bufts))], _TIMEOUT_S)


def run_command(command: list[str], timeout_s: float) -> Trial:
    """Runs any child; one that overstays is ended."""
    package_parent = str(Path(__file__).resolve().parents[3])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Trial(None, (error.stdout or b"").decode("utf-8", "replace"))
    return Trial(done.returncode, done.stdout.decode("utf-8", "replace"))


def crash_name(status: int) -> str | None:
    """The signal that ended a process, by name, or None for an ordinary exit."""
    if status >= 0:
        return _WINDOWS_CRASHES.get(status)
    try:
        return signal.Signals(-status).name
    except ValueError:
        return _WINDOWS_CRASHES.get(status & 0xFFFFFFFF, f"signal {-status}")


def _read(path: Path) -> Verdict | None:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Verdict(
            bool(fields["safe"]), bool(fields["use_extra_bufts"]), str(fields["reason"]), tuple(fields["tested"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, found: Verdict) -> None:
    """Keeps the verdict if the folder allows it; otherwise the next process finds it out again."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(asdict(found)), encoding="utf-8")
        partial.replace(path)
    except OSError:
        return
