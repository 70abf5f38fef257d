"""Where setup keeps what a second clone can use again: built engines and logs. Gives writable paths."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_NAME = "edge_specquant"


def setup_cache() -> Path:
    """A writable per-user folder, created. `EDGE_SPECQUANT_HOME` wins; without a usable home it is a temporary one."""
    for folder in _candidates():
        if _is_writable(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))


def _candidates() -> list[Path]:
    chosen = os.environ.get("EDGE_SPECQUANT_HOME", "").strip()
    user = str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    fallback = Path(tempfile.gettempdir()) / f"{_NAME}-{user}" / "cache"
    if chosen:
        return [Path(chosen).expanduser().absolute() / "cache", fallback]
    xdg, local = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("LOCALAPPDATA", "")
    if sys.platform == "win32" and local:
        return [Path(local) / _NAME / "cache", fallback]
    if Path(xdg).is_absolute():
        return [Path(xdg) / _NAME, fallback]
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and no passwd entry
        return [fallback]
    return [home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / _NAME, fallback]


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
