"""How to get an extra: the command for the pip of the Python that runs this, since another pip installs elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path


def pip_install(extra: str) -> str:
    """A line to paste, such as `.venv/bin/python -m pip install 'edge-specquant[demo]'`."""
    python = Path(sys.executable)
    try:
        shown = str(python.relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or in a folder that is gone
        shown = str(python)
    quoted = f'"{shown}"' if " " in shown else shown
    return f"{quoted} -m pip install 'edge-specquant[{extra}]'"
