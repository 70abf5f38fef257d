"""Asks whether AMX really works here: compiles ten lines of C and runs them in a child process.

A virtual machine may advertise AMX and fault at the first `ldtilecfg`; only trying it tells. Knows no build flags.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 30.0
# ARCH_REQ_XCOMP_PERM (0x1023) asks Linux for the tile registers, state component 18.
_SOURCE = r"""
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
static unsigned char config[64] __attribute__((aligned(64)));
int main(void) {
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return 3;
    config[0] = 1;
    for (int tile = 0; tile < 3; tile++) { config[16 + 2 * tile] = 64; config[48 + tile] = 16; }
    _tile_loadconfig(config);
    _tile_zero(0); _tile_zero(1); _tile_zero(2);
    _tile_dpbssd(0, 1, 2);
    _tile_release();
    return 0;
}
"""


@dataclass(frozen=True, slots=True)
class AmxProbe:
    """state: "absent", "works", "faults" or "unknown" (could not be tried); reason is one clause for people."""

    state: str
    reason: str


def probe_amx(cpu_flags: frozenset[str], run: Callable[[Sequence[str]], int] | None = None) -> AmxProbe:
    """Tries AMX when the processor advertises it. `run(command)` returns an exit status; a signal is negative."""
    if not {"amx_tile", "amx_int8"} <= cpu_flags:
        return AmxProbe("absent", "the processor has no AMX")
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return AmxProbe("unknown", "the processor advertises AMX but there is no C compiler to try it")
    with tempfile.TemporaryDirectory(prefix="amx-") as folder:
        return _compile_and_run(compiler, Path(folder), run or _status)


def _compile_and_run(compiler: str, folder: Path, run: Callable[[Sequence[str]], int]) -> AmxProbe:
    source, program = folder / "amx.c", folder / "amx"
    source.write_text(_SOURCE, encoding="ascii")
    if run([compiler, "-O1", "-mamx-tile", "-mamx-int8", str(source), "-o", str(program)]) != 0:
        return AmxProbe("unknown", "the processor advertises AMX but this compiler cannot build for it")
    status = run([str(program)])
    if status == 0:
        return AmxProbe("works", "AMX was tried and works")
    if status == 3:
        return AmxProbe("faults", "the kernel refuses AMX")
    return AmxProbe("faults", f"AMX is advertised but dies when used (status {status})")


def _status(command: Sequence[str]) -> int:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
            preexec_fn=_no_core_file if sys.platform != "win32" else None,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return -1


def _no_core_file() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
