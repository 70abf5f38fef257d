"""Compiles the kernel: for this processor, or ahead for machines without a compiler (run as a script, by packaging).

Takes the source beside it. Imports nothing of this package, so that it runs before anything is installed.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.c")
AHEAD = Path(__file__).with_name("ahead.so")
"""For any x86 processor with AVX2; code for more is chosen when it runs. Only packages have it."""

_FLAGS = ("-O3", "-shared", "-fPIC", "-std=gnu11", "-fvisibility=hidden")
_MATH_FLAGS = ("-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math", "-ffp-contract=off")
_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # clang on ARM knows only the second
_ANY_AVX2 = (("-mavx2", "-mfma", "-mf16c"),)
_TIMEOUT_S = 120.0


def compiler() -> list[str] | None:
    """The command of CC, or of the first C compiler on PATH."""
    named = os.environ.get("CC")
    if named:
        return shlex.split(named)
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return None if found is None else [found]


def source_text() -> bytes:
    """All of the source. Raises OSError."""
    return b"".join(path.read_bytes() for path in sorted(SOURCE.parent.glob("*.[ch]")))


def compile_into(target: Path, command: list[str], machines: tuple[tuple[str, ...], ...] = _NATIVE) -> str | None:
    """The library at `target`, whole or not at all; what went wrong, or None."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    reason = "no attempt"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_stale(target.parent)
        for machine in machines:
            flags = (*_FLAGS, *_MATH_FLAGS, *machine)
            done = subprocess.run(
                [*command, *flags, str(SOURCE), "-o", str(partial), "-lm"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
            if done.returncode == 0:
                partial.replace(target)
                return None
            reason = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
        return f"the kernel could not be compiled: {reason}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the kernel could not be compiled: {error}"
    finally:
        partial.unlink(missing_ok=True)


def _clear_stale(folder: Path) -> None:
    """What a compilation left that was killed: no living one is so old."""
    for partial in folder.glob(".*.part"):
        if time.time() - partial.stat().st_mtime > len(_NATIVE) * _TIMEOUT_S:
            partial.unlink(missing_ok=True)


def _compile_ahead() -> str | None:
    command = compiler()
    if command is None or platform.machine() not in ("x86_64", "AMD64"):
        print("the kernel is not compiled ahead: that takes a C compiler and an x86 processor")
        return None
    return compile_into(AHEAD, command, _ANY_AVX2)


if __name__ == "__main__":
    sys.exit(_compile_ahead())
