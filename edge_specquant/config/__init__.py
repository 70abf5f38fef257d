"""Settings and the places of files. From the ground up: paths; settings (types and defaults); load (file, environment,
flags); edit (changes one line of the file)."""

from .load import Loaded, load_settings
from .paths import (
    HOME_VARIABLE,
    DataFolder,
    cache_dir,
    data_folder,
    families_dir,
    logs_dir,
    settings_path,
    store_path,
)
from .settings import Settings

__all__ = [
    "HOME_VARIABLE",
    "DataFolder",
    "Loaded",
    "Settings",
    "cache_dir",
    "data_folder",
    "families_dir",
    "load_settings",
    "logs_dir",
    "settings_path",
    "store_path",
]
