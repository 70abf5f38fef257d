"""Settings from the file, then the environment, then flags; each later one wins. Says where each value came from.

A value of the wrong type and an unknown key are errors with the place and the nearest name; so a typo never passes
silently. A missing file is no error.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from .paths import settings_path
from .settings import Key, Settings, keys
from .toml import tomllib

_PREFIX = "EDGE_SPECQUANT_"
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_TYPE_NAMES = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
_HEADER = re.compile(r"\s*\[\s*[\"']?([\w-]+)[\"']?\s*\]")
_ENTRY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*(?:\.\s*[\"']?([\w-]+)[\"']?\s*)?=")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, with the origin of each value by its dotted name: 'default', 'FILE:LINE', 'env NAME' or 'flag'."""

    settings: Settings
    origins: Mapping[str, str]
    path: Path
    notice: str | None
    """Why the file was passed over, when it was."""

    def value(self, key: Key) -> object:
        """One setting's value."""
        value: object = getattr(getattr(self.settings, key.section), key.name)
        return value


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Reads the file and the environment and adds flags ({'chat.seed': 7}; None is a flag not given).

    Raises SettingsError for what is wrong in any of them.
    """
    path = path or settings_path()
    text, notice = _read(path)
    known = {key.dotted: key for key in keys()}
    values: dict[str, object] = {}
    origins = dict.fromkeys(known, "default")
    sources = (
        _from_file(text, path, known),
        _from_environment(os.environ if environment is None else environment, known),
        _from_flags(flags or {}, known),
    )
    for name, value, origin in (entry for source in sources for entry in source):
        values[name], origins[name] = value, origin
    return Loaded(_build(known, values), origins, path, notice)


def known_key(dotted: str) -> Key:
    """The setting of that dotted name, or SettingsError with the nearest one."""
    known = {key.dotted: key for key in keys()}
    if dotted not in known:
        raise SettingsError(f"there is no setting '{dotted}'{_nearest(dotted, known)}")
    return known[dotted]


def from_word(key: Key, word: str, place: str) -> object:
    """A value from text as the environment and the command line give it. Raises SettingsError naming the place."""
    readers: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("bool", lambda text: _WORDS[text.strip().lower()]),
        ("int", int),
        ("float", float),
        ("str", str),
    )
    for name, reader in readers:
        if name in key.types:
            try:
                return checked(key, reader(word), place)
            except (ValueError, KeyError):
                break
    raise _wrong_type(key, word, place)


def checked(key: Key, value: object, place: str) -> object:
    """The value if it is of the setting's type and choices; an int where a float is wanted becomes one."""
    kind = type(value).__name__
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong_type(key, value, place)
    if kind == "int" and "float" in key.types and isinstance(value, int):
        return float(value)
    if kind not in key.types:
        raise _wrong_type(key, value, place)
    if key.choices and value not in key.choices:
        raise SettingsError(
            f"{place}: {key.dotted} is '{value}'; it must be one of {', '.join(key.choices)}"
            + _nearest(str(value), key.choices)
        )
    return value


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The file as nested tables, or SettingsError with line and column."""
    try:
        tables: dict[str, Any] = tomllib.loads(text)
        return tables
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error


def lines_of(text: str) -> list[str]:
    """The lines as TOML counts them, each with its end."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def line_of(text: str, section: str, name: str | None) -> int | None:
    """The line, from 1, that sets a key (`name = ` below `[section]`, or `section.name = `), or the header for None."""
    current = ""
    for number, line in enumerate(lines_of(text), 1):
        header, entry = _HEADER.match(line), _ENTRY.match(line)
        if header:
            current = header[1]
            if name is None and current == section:
                return number
        elif entry and (section, name) in ((current, entry[1]), (entry[1], entry[2])):
            return number
    return None


def _read(path: Path) -> tuple[str, str | None]:
    try:
        return path.read_bytes().decode("utf-8-sig"), None
    except (FileNotFoundError, NotADirectoryError):
        return "", None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        return "", f"{path} cannot be read ({error.strerror or error}); the defaults are used"


Entries = Iterable[tuple[str, object, str]]


def _from_file(text: str, path: Path, known: Mapping[str, Key]) -> Entries:
    sections = {key.section for key in known.values()}
    for section, table in parse_toml(text, path).items():
        if section not in sections:
            raise SettingsError(f"{path}: there is no section '{section}'{_nearest(section, sections)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: '{section}' is a section; write [{section}] and its settings below")
        for name, value in table.items():
            number = line_of(text, section, name)
            place = f"{path}:{number}" if number else str(path)
            dotted = f"{section}.{name}"
            if dotted not in known:
                raise SettingsError(f"{place}: there is no setting '{dotted}'{_nearest(dotted, known)}")
            yield dotted, checked(known[dotted], value, place), place


def _from_environment(environment: Mapping[str, str], known: Mapping[str, Key]) -> Entries:
    """Empty variables count as not set. Names outside our sections belong to others, unless they look like a typo."""
    variables = {key.variable: key for key in known.values()}
    sections = tuple({f"{_PREFIX}{key.section.upper()}_" for key in known.values()})
    for name in sorted(name for name, word in environment.items() if word and name.startswith(_PREFIX)):
        if name in variables:
            key = variables[name]
            yield key.dotted, from_word(key, environment[name], f"environment variable {name}"), f"env {name}"
        elif name.startswith(sections):
            raise SettingsError(f"environment variable {name} names no setting{_nearest(name, variables)}")


def _from_flags(flags: Mapping[str, object], known: Mapping[str, Key]) -> Entries:
    for dotted, value in flags.items():
        if dotted not in known:
            raise SettingsError(f"there is no setting '{dotted}'{_nearest(dotted, known)}")
        if value is not None:
            yield dotted, checked(known[dotted], value, "flag"), "flag"


def _build(known: Mapping[str, Key], values: Mapping[str, object]) -> Settings:
    sections: dict[str, dict[str, Any]] = {}
    for dotted, value in values.items():
        sections.setdefault(known[dotted].section, {})[known[dotted].name] = value
    defaults = Settings()
    return Settings(**{name: type(getattr(defaults, name))(**given) for name, given in sections.items()})


def _wrong_type(key: Key, value: object, place: str) -> SettingsError:
    shown = "(hidden)" if key.is_secret else repr(value)[:60]
    wanted = next(_TYPE_NAMES[name] for name in ("bool", "int", "float", "str") if name in key.types)
    return SettingsError(f"{place}: {key.dotted} is {shown}; it must be {wanted}")


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(sorted(known))}"
