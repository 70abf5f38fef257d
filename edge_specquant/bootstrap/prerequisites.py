"""Checks what only the machine's owner can provide, before minutes are spent: Python, venv, compilers, disk.

Each problem is a SetupError of one sentence that names the cure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import SetupError

OLDEST_PYTHON, NEWEST_TESTED_PYTHON = (3, 10), (3, 13)
_COMPILE_SECONDS = 60.0


def check_python() -> str:
    """What is there, in words. Raises SetupError for a Python that cannot work."""
    version = sys.version_info[:2]
    if version < OLDEST_PYTHON:
        raise SetupError(f"Python {version[0]}.{version[1]} is too old; install Python 3.10 to 3.13")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"Python {version[0]}.{version[1]} lacks {' and '.join(missing)}; "
            f"install it (Debian, Ubuntu: apt install python{version[0]}.{version[1]}-venv)"
        )
    note = "" if version <= NEWEST_TESTED_PYTHON else ", newer than any tested"
    return f"Python {'.'.join(map(str, sys.version_info[:3]))}{note}"


def check_compilers() -> str:
    """Both compilers, tried on three lines of code, and how cmake comes. Raises SetupError."""
    if sys.platform == "win32":  # MSVC is found by CMake, not on PATH
        return "the compiler is looked for by CMake"
    found = [_compiler("CC", ("cc", "gcc", "clang"), "C"), _compiler("CXX", ("c++", "g++", "clang++"), "C++")]
    with tempfile.TemporaryDirectory(prefix="edge-specquant-cc-") as folder:
        _try_compiler(found[0], Path(folder) / "a.c", "#include <stdint.h>\nint main(void) { return 0; }\n")
        program = "#include <vector>\nint main() { return std::vector<int>(1)[0]; }\n"
        _try_compiler(found[1], Path(folder) / "a.cpp", program)
    cmake = "cmake" if shutil.which("cmake") else "cmake from the package index"
    return f"{Path(found[0]).name}, {Path(found[1]).name}, {cmake}"


def check_disk(folder: Path, n_bytes: int, purpose: str) -> str:
    """Free space where `folder` is or will be. Raises SetupError when it is below n_bytes."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < n_bytes:
        raise SetupError(
            f"{purpose} needs {n_bytes / 1e9:.1f} GB in {existing} and only {free / 1e9:.1f} are free; make room there"
        )
    return f"{free / 1e9:.0f} GB free"


def _compiler(variable: str, names: tuple[str, ...], language: str) -> str:
    chosen = os.environ.get(variable, "")  # a path, which may have spaces, or a program and its arguments
    tried = [chosen, *chosen.split()[:1], *names]
    found = next((path for name in tried if (path := shutil.which(name))), None)
    if found is None:
        raise SetupError(
            f"there is no {language} compiler, and the engine is built from source; install one "
            "(Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc-c++; macOS: xcode-select --install)"
        )
    return found


def _try_compiler(compiler: str, source: Path, text: str) -> None:
    source.write_text(text, encoding="ascii")
    command = [compiler, str(source), "-o", str(source.with_suffix(".out"))]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"the compiler {compiler} cannot be run ({error})") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise SetupError(
            f"{compiler} cannot compile a small program ({said[0] if said else f'status {done.returncode}'}); "
            "install its headers and libraries (Debian, Ubuntu: apt install build-essential)"
        )
