"""What the chat remembers of its looks between runs: one small JSON file. A bad or unwritable one costs nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ... import config
from ...errors import EdgeSpecQuantError

FILE_NAME = "chat.json"


@dataclass(frozen=True, slots=True)
class Preferences:
    """theme is a Textual theme's name; family is the one last used."""

    theme: str = "tokyo-night"
    show_stats: bool = True
    show_origins: bool = False
    family: str = ""


def load(path: Path | None = None) -> Preferences:
    """The stored preferences; defaults for what is missing or of the wrong type."""
    try:
        values = json.loads((path or _path()).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Preferences()
    defaults = Preferences()
    known = {field.name: values.get(field.name) for field in fields(Preferences)} if isinstance(values, dict) else {}
    return Preferences(**{k: v for k, v in known.items() if isinstance(v, type(getattr(defaults, k)))})


def save(preferences: Preferences, path: Path | None = None) -> None:
    """Writes them; a disk that refuses is no reason to disturb anybody."""
    from ...gguf.format.atomic import write_text_whole

    target = path or _path()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text_whole(target, json.dumps(asdict(preferences), indent=1) + "\n")
    except (OSError, EdgeSpecQuantError):
        return


def _path() -> Path:
    return config.data_folder().path / FILE_NAME
