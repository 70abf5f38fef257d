"""Where things live: the data folder and its rooms (families, cache, logs).

Takes the environment, gives paths. `EDGE_SPECQUANT_HOME` overrides the platform's user data folder. One rule where that
folder cannot be made: an error that says so. Nothing goes to a temporary folder that nobody asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ..errors import SettingsError

HOME_VARIABLE = "EDGE_SPECQUANT_HOME"
SETTINGS_NAME = "settings.toml"
_APP_NAME = "edge_specquant"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The root of everything this program writes."""

    path: Path


def data_folder() -> DataFolder:
    """The data folder, created when missing. An explicit `EDGE_SPECQUANT_HOME` is taken as it is.

    Raises SettingsError where there is no folder to write to.
    """
    chosen = os.environ.get(HOME_VARIABLE, "").strip()
    if chosen:
        try:
            return DataFolder(Path(chosen).expanduser().absolute())
        except RuntimeError as error:
            raise SettingsError(f"{HOME_VARIABLE} is '{chosen}', and this user has no home folder") from error
    try:
        usual = platformdirs.user_data_path(_APP_NAME, appauthor=False)
    except (KeyError, RuntimeError, OSError) as error:
        raise _nowhere(f"this user has no home folder ({error})") from error
    if not usual.is_absolute():  # no HOME and no passwd entry: the tilde stays unexpanded
        raise _nowhere("this user has no home folder")
    try:
        usual.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _nowhere(f"{usual} cannot be made ({error.strerror or error})") from error
    return DataFolder(usual)


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


def _nowhere(problem: str) -> SettingsError:
    return SettingsError(f"{problem}; set {HOME_VARIABLE} to a folder that can be written, with room for models")
