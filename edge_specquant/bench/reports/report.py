"""A Result as files: report.md, one CSV a table, result.json, and the plots as SVG and PNG where matplotlib is there.

Every file appears whole or not at all.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...extras import pip_install
from ...gguf.format.atomic import write_text_whole
from .document import write_document
from .result import Result
from .tables import comma_separated, markdown


def write_report(folder: Path, result: Result) -> tuple[str, ...]:
    """Writes all files; returns what was left out, a sentence each. Raises FileError."""
    left_out: list[str] = []
    pictures: list[tuple[str, str]] = []
    try:
        from .plots import draw
    except ImportError:
        left_out.append(f"no plots: matplotlib is missing; {pip_install('bench')}")
    else:
        pictures = draw(folder, result)
    for table in result.tables:
        write_text_whole(folder / f"{_slug(table.title)}.csv", comma_separated(table))
    write_document(folder / "result.json", result.document)
    write_text_whole(folder / "report.md", report_text(result, pictures))
    return tuple(left_out)


def report_text(result: Result, pictures: list[tuple[str, str]]) -> str:
    """The Markdown report; pictures are (title, file name)."""
    parts = [f"# {result.title}", ""]
    parts += [*(f"- {sentence}" for sentence in result.verdict), ""] if result.verdict else []
    parts += [markdown(table) for table in result.tables]
    parts += [f"### {title}\n\n![{title}]({name})\n" for title, name in pictures]
    return "\n".join(parts)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "table"
