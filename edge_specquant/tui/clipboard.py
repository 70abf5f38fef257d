"""The system clipboard through the platform's own tool, where there is one. The terminal's (OSC 52) is Textual's."""

from __future__ import annotations

import shutil
import subprocess

_TOOLS = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
    ("xsel", "--clipboard", "--input"),
    ("clip.exe",),
)
_PATIENCE_S = 2.0


def copy_to_system(text: str) -> bool:
    """Gives the text to the first tool that takes it. False when none is there or none could reach a display."""
    for command in _TOOLS:
        if shutil.which(command[0]) is None:
            continue
        try:
            subprocess.run(
                command,
                input=text.encode("utf-8", "replace"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return True
    return False
