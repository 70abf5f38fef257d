"""Who is writing: a mark that names this process and, later, tells whether that process still lives.

A process number alone is reused, and clocks jump; so the mark holds the boot, the process namespace and the
start in kernel ticks where the system tells them (Linux), and the number alone elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def own_mark() -> str:
    """'pid:start:place' of this process; start and place are empty where the system does not tell them."""
    pid = os.getpid()
    return f"{pid}:{_start_ticks(pid)}:{_place()}"


def is_alive(mark: str) -> bool:
    """Whether the process that wrote this mark still runs.

    A mark from another boot or another container counts as dead: its writer cannot be seen from here. Should it
    live after all, its next write says so again.
    """
    number, _, rest = mark.partition(":")
    start, _, place = rest.partition(":")
    if not number.isdigit() or place != _place():
        return False
    pid = int(number)
    if start:
        return _start_ticks(pid) == start
    return _runs(pid)


def _start_ticks(pid: int) -> str:
    """Start in clock ticks since boot, field 22 of proc(5) stat; the name in field 2 may hold spaces and ')'.

    Empty for a process that ended but was not yet waited for: a zombie writes no more.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    is_dead = not fields or fields[0] in (b"Z", b"X")
    return "" if is_dead or len(fields) < 20 else fields[19].decode("ascii", "replace")


def _place() -> str:
    """Boot and process namespace, or empty where there is no proc(5)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return ""


def _runs(pid: int) -> bool:
    if sys.platform == "win32":
        return _runs_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _runs_on_windows(pid: int) -> bool:
    """OpenProcess and GetExitCodeProcess; os.kill would end the process there."""
    query_limited_information, still_active = 0x1000, 259
    kernel = ctypes.CDLL("kernel32")
    handle = kernel.OpenProcess(query_limited_information, False, pid)
    if not handle:
        return False
    try:
        code = ctypes.c_ulong()
        return bool(kernel.GetExitCodeProcess(handle, ctypes.byref(code))) and code.value == still_active
    finally:
        kernel.CloseHandle(handle)
