"""Bytes, seconds and tokens per second: parse and format. Nowhere else in the package."""

from __future__ import annotations

import re

from .errors import UsageError

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)\s*", re.IGNORECASE)


def format_bytes(n_bytes: float) -> str:
    """Binary units, three digits: 1536 -> '1.50 KiB'."""
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{int(size)} B" if unit == "B" else f"{_three_digits(size)} {unit}"
        size /= 1024
    return f"{_three_digits(size)} TiB"


def parse_bytes(text: str) -> int:
    """'4GiB', '512M', '1000' -> bytes. A bare or i-less letter counts in powers of 1024, as llama.cpp does."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise UsageError(f"'{text}' is not a size; write it like 512M or 4GiB")
    number, power, _, _ = match.groups()
    return int(float(number) * 1024 ** _POWERS[power.lower()])


def format_seconds(seconds: float) -> str:
    """Three digits in the unit a person would pick: 0.0123 -> '12.3 ms'."""
    if abs(seconds) < 1e-3:
        return f"{_three_digits(seconds * 1e6)} µs"
    if abs(seconds) < 1:
        return f"{_three_digits(seconds * 1e3)} ms"
    if abs(seconds) < 120:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def format_rate(tokens_per_s: float | None) -> str:
    """'31.4 tok/s', or an em dash when unknown."""
    return "—" if tokens_per_s is None else f"{_three_digits(tokens_per_s)} tok/s"


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.2f}" if magnitude < 10 else f"{value:.1f}" if magnitude < 100 else f"{value:.0f}"
