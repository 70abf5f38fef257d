"""What a front end tells the engine's process at its start. Plain values that any process can pickle."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import EngineOptions


@dataclass(frozen=True, slots=True)
class Opening:
    """The family (a folder or a file), how to set it up, and whose child this is."""

    family: str
    options: EngineOptions
    parent_pid: int
