"""Where setup keeps what a second clone can use again: built engines and logs. Gives writable paths."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_NAME = "edge_specquant"


def setup_cache() -> Path:
    """A writable per-user folder, created. `EDGE_SPECQUANT_HOME` wins; without a usable home it is a temporary one."""
    chosen = _usual()
    if chosen is not None and _is_writable(chosen):
        return chosen
    user = str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    shared = Path(tempfile.gettempdir()) / f"{_NAME}-cache-{user}"
    # Wheels found here get installed: a folder that another user prepared must not be trusted.
    if _is_writable(shared) and _is_own(shared):
        return shared
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-cache-"))


def _usual() -> Path | None:
    """Where the platform's user expects it, or None without a home."""
    chosen = os.environ.get("EDGE_SPECQUANT_HOME", "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute() / "cache"
    xdg, local = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("LOCALAPPDATA", "")
    if sys.platform == "win32" and local:
        return Path(local) / _NAME / "cache"
    if Path(xdg).is_absolute():
        return Path(xdg) / _NAME
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and no passwd entry
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / _NAME


def _is_own(folder: Path) -> bool:
    return not hasattr(os, "getuid") or (folder.stat().st_uid == os.getuid() and not folder.is_symlink())


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
