"""Runs the whole test suite as a machine meets it that has never run it: on several cores, in a new temporary folder.

Takes the repository's root and the Python of `.venv`; gives pytest's exit code. The folder's name has a space and
another length each time, so that no test comes to lean on a path; it is printed, because a failure may need it again.
How many processes there are is decided in tests/conftest.py.
"""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from .commands import say

_LONGEST = 60  # with what tests put behind it a path stays far below 260 characters, the least a system allows


def run_whole_suite(root: Path, python: Path) -> int:
    """Everything but tests marked slow. The temporary files stay after a failure only."""
    outer = Path(tempfile.mkdtemp(prefix="esq-"))
    base = outer / f"of a suite {'x' * random.randrange(_LONGEST)}"
    spread = ["-n", "auto", "--dist", "loadfile"]
    say(f"temporary files: {base}\nto repeat a test there: scripts/test --basetemp {shlex.quote(str(base))} TEST")
    status: int | None = None
    try:
        command = [str(python), "-m", "pytest", *spread, "--basetemp", str(base)]
        status = subprocess.call(command, cwd=root)
    finally:
        if status != 1:  # 1: tests failed, and what they wrote may say why
            shutil.rmtree(outer, ignore_errors=True)
    return status
