"""The commands as one Markdown page."""

from __future__ import annotations

import re

from .commands import Verb, verbs


def cli_reference() -> str:
    """Every command with its usage, help and options."""
    head = "# Command line\n\nEvery command, from the program's own help. `--help` behind any of them shows the same.\n"
    return "\n".join([head, *map(_section, verbs())])


def _section(verb: Verb) -> str:
    level = min(len(verb.name.split()) + 1, 4)
    lines = [f"{'#' * level} {verb.name}", "", f"    {verb.usage}", ""]
    for paragraph in verb.paragraphs:
        lines += [_plain(paragraph), ""]
    if verb.options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{names}` | {_plain(meaning)} |" for names, meaning in verb.options]
        lines.append("")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is, in a table too; what stands between backticks is left alone anyway."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\[*_|])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
