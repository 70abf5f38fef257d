"""Text from models and files on a terminal: control characters are shown, never obeyed."""

from __future__ import annotations

from ...printable import shown

__all__ = ["shown"]
