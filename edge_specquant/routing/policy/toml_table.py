"""A TOML document whose getters check types and name what is wrong.

Takes text and its source; gives numbers, texts and key lists by dotted path. Knows nothing of policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...config.toml import tomllib
from ...errors import SettingsError


@dataclass(frozen=True, slots=True)
class TomlTable:
    """One document; `source` begins every message."""

    document: Mapping[str, Any]
    source: str

    @classmethod
    def parse(cls, text: str, source: str) -> TomlTable:
        """Raises SettingsError with the place of a syntax error."""
        try:
            return cls(tomllib.loads(text), source)
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{source} is not TOML: {error}") from error

    def number(self, path: str, default: float | None = None) -> float:
        """A finite number. Raises SettingsError."""
        value = self._get(path, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise self.error(path, f"is {value!r}; it must be a number")
        if math.isinf(value):
            raise self.error(path, f"is {value}; it must be a finite number")
        return float(value)

    def text(self, path: str, default: str | None = None) -> str:
        """A text; without a default it must be there and not empty. Raises SettingsError."""
        value = self._get(path, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.error(path, "is missing or not a text")
        return value

    def flag(self, path: str) -> bool:
        """true or false; false when missing. Raises SettingsError."""
        value = self._get(path, False)
        if not isinstance(value, bool):
            raise self.error(path, f"is {value!r}; it must be true or false")
        return value

    def keys(self, path: str) -> list[str]:
        """Keys of a table in their order; none when it is missing. Raises SettingsError when it is no table."""
        value = self._get(path, {})
        if not isinstance(value, Mapping):
            raise self.error(path, "must be a table")
        return list(value)

    def error(self, path: str, problem: str) -> SettingsError:
        """The error to raise about one field."""
        return SettingsError(f"{self.source}: {path} {problem}")

    def _get(self, path: str, default: Any) -> Any:
        at: Any = self.document
        for key in path.split("."):
            if not isinstance(at, Mapping) or key not in at:
                return default
            at = at[key]
        return at
