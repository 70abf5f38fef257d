"""Where things live: the data folder and its rooms (families, cache, logs).

Takes the environment, gives paths. `EDGE_SPECQUANT_HOME` overrides the platform's user data folder. A home that is
missing or cannot be written is replaced by a folder under the temporary directory, and the reason is kept to be shown.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ..errors import SettingsError

HOME_VARIABLE = "EDGE_SPECQUANT_HOME"
SETTINGS_NAME = "settings.toml"
_APP_NAME = "edge_specquant"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The root of everything this program writes, with the reason when it is not the usual one."""

    path: Path
    reason: str | None = None


def data_folder() -> DataFolder:
    """The data folder, created when missing. An explicit `EDGE_SPECQUANT_HOME` is taken as it is, never replaced."""
    chosen = os.environ.get(HOME_VARIABLE, "").strip()
    if chosen:
        try:
            return DataFolder(Path(chosen).expanduser().absolute())
        except RuntimeError as error:
            raise SettingsError(f"{HOME_VARIABLE} is '{chosen}', and this user has no home folder") from error
    try:
        usual = platformdirs.user_data_path(_APP_NAME, appauthor=False)
    except (KeyError, RuntimeError, OSError) as error:
        return _fallback(f"this user has no home folder ({error})")
    if not usual.is_absolute():  # no HOME and no passwd entry: the tilde stays unexpanded
        return _fallback("this user has no home folder")
    problem = _why_not_writable(usual)
    return DataFolder(usual) if problem is None else _fallback(problem)


def families_dir() -> Path:
    """Folder of families, one subfolder each. Not created here."""
    return data_folder().path / "families"


def cache_dir() -> Path:
    """Folder of measurements and verdicts that can be made again."""
    return data_folder().path / "cache"


def logs_dir() -> Path:
    """Folder of log files."""
    return data_folder().path / "logs"


def store_path() -> Path:
    """File of the conversations, when the settings name no other; in a folder of its own, which is made private."""
    return data_folder().path / "conversations" / "conversations.db"


def settings_path() -> Path:
    """The settings file; it need not exist. In the data folder where that is chosen, else in the platform's place."""
    if os.environ.get(HOME_VARIABLE, "").strip():
        return data_folder().path / SETTINGS_NAME
    try:
        usual = platformdirs.user_config_path(_APP_NAME, appauthor=False)
    except (KeyError, RuntimeError, OSError):
        return data_folder().path / SETTINGS_NAME
    return (usual if usual.is_absolute() else data_folder().path) / SETTINGS_NAME


def _why_not_writable(folder: Path) -> str | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror or error})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written"
    return None


def _fallback(problem: str) -> DataFolder:
    folder = Path(tempfile.gettempdir()) / f"{_APP_NAME}-{_user_tag()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        folder = Path(tempfile.mkdtemp(prefix=f"{_APP_NAME}-"))  # somebody else owns the name
    return DataFolder(folder, f"{problem}; using {folder} (set {HOME_VARIABLE} to choose a folder)")


def _user_tag() -> str:
    # One folder a user, so that two users of one machine never share (or fight over) it.
    if hasattr(os, "getuid"):
        return str(os.getuid())
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "user"
