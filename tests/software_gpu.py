"""A GPU made of software for tests: its environment, and a child process that tries models on it.

The engine takes its backends when it is first loaded, so that whatever needs one more runs in a child.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
_SETUP_S, _CHILD_S = 300, 600


@functools.cache
def environment() -> dict[str, str] | str:
    """The variables that put the device beside the engine, or why there is none."""
    command = [sys.executable, str(ROOT / "scripts" / "software-gpu")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SETUP_S, check=False)
    except subprocess.TimeoutExpired:
        return f"scripts/software-gpu took more than {_SETUP_S} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "scripts/software-gpu failed"
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, beside the device; skips the test where there is none."""
    found = environment()
    if isinstance(found, str):
        pytest.skip(f"no software GPU: {found}")
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        **found,
        "LP_NUM_THREADS": "1",
        **more,
    }
    return subprocess.run(
        [sys.executable, *arguments], env=variables, capture_output=True, text=True, timeout=_CHILD_S, check=False
    )


def found_by(module: str, *arguments: object, **more: str) -> Any:
    """What a module of the tests prints as its last line, as JSON."""
    done = run("-m", module, *map(str, arguments), **more)
    assert done.returncode == 0, done.stderr[-2000:] or f"exit status {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])
