"""Presets of a person's own: a TOML file in the data folder, one table a preset.

    [pirate]
    about = "talks like one"
    system = "Answer like a pirate."
    temperature = 1.0

Takes the file's path; gives Presets, and what was wrong with the file. New ones are added to its end; the rest of the
file is left as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ...config import data_folder
from ...config.toml import tomllib
from ...errors import EdgeSpecQuantError, UsageError
from ...params import SamplingParams
from ...request import Request
from .presets import PRESETS, Preset

FILE_NAME = "presets.toml"
_SAMPLING = frozenset(field.name for field in fields(SamplingParams)) - {"logit_bias"}


@dataclass(frozen=True, slots=True)
class OwnPresets:
    """problem: a sentence about a file that is wrong, or empty."""

    presets: tuple[Preset, ...] = ()
    problem: str = ""


def default_path() -> Path:
    """Where the file is."""
    return data_folder().path / FILE_NAME


def load(path: Path) -> OwnPresets:
    """The presets of the file; none when there is no file. One bad table costs itself alone."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return OwnPresets()
    except (OSError, ValueError) as error:
        return OwnPresets(problem=f"{path} is passed over: {error}")
    found: list[Preset] = []
    problems: list[str] = []
    for name, table in tables.items():
        try:
            found.append(_preset(name, table))
        except EdgeSpecQuantError as error:
            problems.append(str(error))
    return OwnPresets(tuple(found), f"{path}: {'; '.join(problems)}" if problems else "")


def add(path: Path, name: str, system: str) -> Preset:
    """Writes another preset to the end of the file. Raises UsageError for a name that is taken or empty, FileError."""
    from ...gguf.format.atomic import write_text_whole

    known = {preset.name for preset in (*PRESETS, *load(path).presets)}
    if not name or name in known:
        raise UsageError(
            f"there is a preset '{name}' already; choose another name" if name else "a preset needs a name"
        )
    preset = Preset(name, _beginning(system), system)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read, so nothing was added: {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    write_text_whole(path, f"{before}{gap}[{_quoted(name)}]\nsystem = {_quoted(system)}\n")
    return preset


def _preset(name: str, table: object) -> Preset:
    if not isinstance(table, dict):
        raise UsageError(f"'{name}' is no table; write [{name}] and its keys below")
    texts = {key: table[key] for key in ("about", "system") if key in table}
    thinking = {key: table[key] for key in ("think", "think_budget") if key in table}
    sampling = {key: value for key, value in table.items() if key not in {*texts, *thinking}}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"[{name}] {key} is {type(value).__name__}, not text")
    for key, value in sampling.items():
        if key not in _SAMPLING or isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(
                f"[{name}] {key} = {value!r} is no setting of sampling; known are {', '.join(sorted(_SAMPLING))}"
            )
    replace(SamplingParams(), **sampling)  # raises for a value out of its range
    if type(thinking.get("think_budget", 0)) is not int:
        raise UsageError(f"[{name}] think_budget = {thinking['think_budget']!r} is no number of tokens")
    Request(prompt=name, **thinking)
    system = texts.get("system", "")
    return Preset(name, texts.get("about", _beginning(system)), system, sampling, thinking)


def _beginning(system: str) -> str:
    line = " ".join(system.split())
    return line if len(line) <= 60 else line[:59].rstrip() + "…"


def _quoted(text: str) -> str:
    """A TOML basic string: as in JSON, where DEL must be escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
