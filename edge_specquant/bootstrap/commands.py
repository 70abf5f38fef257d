"""Runs long commands (pip, the compiler) with their output in a log file and a heartbeat on the screen.

Ctrl-C or SIGTERM ends the whole tree of processes at once. A failure becomes a SetupError with the log's telling line.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import SetupError

_QUIET_HEARTBEAT_S = 60.0
_GRACE_S = 3.0
_NETWORK_SIGNS = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|ConnectTimeout|ReadTimeout|ProxyError|SSLError"
    r"|Network is unreachable|Connection refused|Could not fetch URL|connection broken"
)
_NINJA_STEP = re.compile(r"\[(\d+)/(\d+)\]")


def say(text: str) -> None:
    """One line for the person who waits; flushed, because the next step may take minutes."""
    print(text, flush=True)


def run_logged(
    command: Sequence[str], log: Path, *, doing: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Runs to the end or raises SetupError; `doing` names the work in heartbeat and error ("building the engine")."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{doing}: {command[0]} could not be started ({error})") from error
        try:
            status = _wait(process, log, doing)
        except BaseException:
            _end_tree(process)
            raise
    if status != 0:
        raise SetupError(explain_failure(log.read_text(encoding="utf-8", errors="replace"), doing, log))


def explain_failure(text: str, doing: str, log: Path) -> str:
    """One sentence from a log: a network cause if one shows, else the compiler's or pip's own line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # pip also warns about a connection it later mended: a build that ran and failed is not the network's fault.
    has_built = any("Failed building wheel" in line for line in lines)
    if not has_built and any(_NETWORK_SIGNS.search(line) for line in lines):
        return f"{doing} failed: the package index cannot be reached; check the network or proxy (log: {log})"
    if any("No space left on device" in line for line in lines):
        return f"{doing} failed: the disk is full; free about 2 GB or point TMPDIR elsewhere (log: {log})"
    compiler = next((line for line in lines if re.search(r"\b(error|Error):|CMake Error", line)), None)
    pip = next((line for line in reversed(lines) if line.startswith("ERROR")), None)
    telling = compiler or pip or (lines[-1] if lines else "it said nothing")
    return f"{doing} failed: {telling[:300]} (log: {log})"


def _wait(process: subprocess.Popen[bytes], log: Path, doing: str) -> int:
    started = time.monotonic()
    progress = _Progress(log)
    on_terminal = sys.stdout.isatty()
    next_line_s = _QUIET_HEARTBEAT_S
    while True:
        try:
            status = process.wait(timeout=1.0)
            break
        except subprocess.TimeoutExpired:
            elapsed_s = time.monotonic() - started
        if on_terminal:
            print(f"\r  {doing}: {elapsed_s:.0f} s{progress.read()} ", end="", flush=True)
        elif elapsed_s >= next_line_s:
            say(f"  {doing}: {elapsed_s:.0f} s{progress.read()}")
            next_line_s = elapsed_s + _QUIET_HEARTBEAT_S  # one line, however long the machine slept
    if on_terminal:
        print("\r\x1b[K", end="", flush=True)
    return status


class _Progress:
    """Follows a growing log for ninja's '[12/144]'; each read looks at what is new only."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self._text = ""

    def read(self) -> str:
        """', file 12 of 144', or nothing before the first step."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole_lines = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole_lines)
        steps = _NINJA_STEP.findall(whole_lines.decode("utf-8", "replace"))
        if steps:
            self._text = f", file {steps[-1][0]} of {steps[-1][1]}"
        return self._text


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and everything it started; the compiler must not go on in the background."""
    if os.name == "posix":
        # Ninja gives each compiler a process group of its own and ends them only when told politely.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_S
            while time.monotonic() < deadline:
                process.poll()  # collects it, or its group would seem alive for ever
                os.killpg(process.pid, 0)
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
    else:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
    process.wait()
