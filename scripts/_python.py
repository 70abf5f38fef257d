"""Finds a Python that fits and hands over to the package. Runs from Python 3.6 on, so that an old one can say so."""

import os
import subprocess
import sys
from pathlib import Path

OLDEST, NEWEST = (3, 10), (3, 13)


def start(name):
    """Run the script `name` of edge_specquant.bootstrap, under another Python if this one does not fit."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST and "EDGE_SPECQUANT_PYTHON" not in os.environ:
        other = find()
        if other:
            print("this is Python {}.{}; going on with {}".format(*sys.version_info[:2], other), file=sys.stderr)
            sys.stderr.flush()
            os.environ["EDGE_SPECQUANT_PYTHON"] = other
            if os.name == "posix":
                os.execvp(other, [other, *sys.argv])
            sys.exit(subprocess.call([other, *sys.argv]))
    if sys.version_info[:2] < OLDEST:
        sys.exit("error: this is Python {}.{}; install Python 3.10 to 3.13".format(*sys.version_info[:2]))
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from edge_specquant.bootstrap.main import main

    sys.exit(main(name, sys.argv[1:]))


def find():
    """The newest fitting Python on PATH that really starts (a version manager's shim may not), or None."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        candidate = f"python3.{minor}"
        try:
            status = subprocess.call(
                [candidate, "-c", f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, {minor}))"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            continue
        if status == 0:
            return candidate
    return None
