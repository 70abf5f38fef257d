"""The catalogue of known checkpoints (`models/catalog.toml`), cut down to what fits this machine.

Takes the file and the machine's memory and bandwidth; gives choices with licence, sizes and a ceiling of tokens/s.
Downloads nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.toml import tomllib
from ...units import format_bytes, format_rate

FILE_NAME = "catalog.toml"
_COLUMNS_GB = (16, 8, 4)
_TOLERANCE = 0.9  # a machine sold as 8 GB shows its system a little less


@dataclass(frozen=True, slots=True)
class Entry:
    """A checkpoint that fits: `siblings` is what answers and drafts here, rate_ceiling is of the target alone."""

    hub: str
    licence: str
    n_bytes: int
    siblings: str
    note: str
    rate_ceiling: float | None

    def about(self) -> str:
        """Size, licence, expected speed, remarks."""
        rate = f", at most {format_rate(self.rate_ceiling)} without drafts" if self.rate_ceiling else ""
        return f"{self.siblings}, {format_bytes(self.n_bytes)}, {self.licence}{rate}; {self.note}"


def entries(path: Path | None, n_memory_bytes: int | None, bytes_per_s: float | None) -> list[Entry]:
    """What fits; an unknown memory is taken for 4 GB. Empty without a readable catalogue."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("checkpoint", []) if path else []
    except (OSError, ValueError):
        return []
    gigabytes = (n_memory_bytes or 4 * 10**9) / 10**9
    column = next((n for n in _COLUMNS_GB if gigabytes >= n * _TOLERANCE), None)
    found = (_entry(row, column, bytes_per_s) for row in rows if isinstance(row, dict))
    return [entry for entry in found if entry is not None]


def find_file() -> Path | None:
    """The catalogue of the checkout, or the one installed with the package."""
    places = (Path(__file__).parents[3] / "models", Path(sys.prefix) / "share" / "edge-specquant")
    return next((place / FILE_NAME for place in places if (place / FILE_NAME).is_file()), None)


def _entry(row: Mapping[str, Any], column: int | None, bytes_per_s: float | None) -> Entry | None:
    siblings = str(row.get(f"fits_{column}gb", "-"))
    sizes = {name: row.get(f"gb_{name}") for name in siblings.split(" + ")}
    known = {name: float(size) * 10**9 for name, size in sizes.items() if isinstance(size, (int, float))}
    target = siblings.split(" + ")[0]
    if siblings == "-" or target not in known:
        return None
    rate = bytes_per_s / known[target] if bytes_per_s else None
    n_bytes = round(sum(known.values()))
    return Entry(str(row.get("hub")), str(row.get("licence")), n_bytes, siblings, str(row.get("note", "")), rate)
