"""Changes one setting in the text of a settings file and touches nothing else, comments included.

The new text is parsed again and compared: when anything but the one setting would differ (a value over several lines,
an unusual spelling), the change is refused and the user is told to edit by hand. Pure: text in, text out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from .load import line_of, lines_of, parse_toml
from .settings import Key


def with_value(text: str, key: Key, value: bool | int | float | str, path: Path) -> str:
    """The text with the setting set. `path` is for messages. Raises SettingsError when it cannot be done safely."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise SettingsError(f"{key.dotted} must be text; the value given holds bytes that are not UTF-8")
    wanted = parse_toml(text, path)
    section = wanted.setdefault(key.section, {})
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: '{key.section}' is a section; write [{key.section}] and its settings below")
    section[key.name] = value
    lines = lines_of(text)
    number = line_of(text, key.section, key.name)
    if number is not None:
        before, _, rest = lines[number - 1].partition("=")
        lines[number - 1] = f"{before.rstrip()} = {_as_toml(value)}{_after_value(rest)}"
    else:
        _insert(lines, text, key, f"{key.name} = {_as_toml(value)}\n")
    return _verified("".join(lines), wanted, key, path)


def without_value(text: str, key: Key, path: Path) -> str:
    """The text without the setting, so that its default holds again."""
    wanted = parse_toml(text, path)
    section = wanted.get(key.section)
    if not isinstance(section, dict) or key.name not in section:
        return text
    del section[key.name]
    number = line_of(text, key.section, key.name)
    lines = lines_of(text)
    if number is not None:
        del lines[number - 1]
    return _verified("".join(lines), wanted, key, path)


def _insert(lines: list[str], text: str, key: Key, entry: str) -> None:
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    header = line_of(text, key.section, None)
    if header is not None:
        lines.insert(header, entry)
    else:
        lines += ["\n"] * bool(lines) + [f"[{key.section}]\n", entry]


def _after_value(rest: str) -> str:
    """What stands behind a value: its comment and the end of the line. Found by trying: a '#' may be inside a text."""
    body = rest.rstrip("\r\n")
    end = rest[len(body) :] or "\n"
    for place in (index for index, character in enumerate(body) if character == "#"):
        if _is_value(body[:place]):
            return f" {body[place:]}{end}"
    return end


def _is_value(text: str) -> bool:
    try:
        parse_toml(f"x = {text}", Path())
    except SettingsError:
        return False
    return True


def _as_toml(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)


def _verified(text: str, wanted: dict[str, Any], key: Key, path: Path) -> str:
    try:
        found = parse_toml(text, path)
    except SettingsError:
        found = None
    if found is None or _without_empty(found, key) != _without_empty(wanted, key):
        raise SettingsError(f"{path} spells {key.dotted} in a way that cannot be changed safely; edit it by hand")
    return text


def _without_empty(tables: dict[str, Any], key: Key) -> dict[str, Any]:
    """A section without settings means the same as no section."""
    return {name: table for name, table in tables.items() if table or name != key.section}
