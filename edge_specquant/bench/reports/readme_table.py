"""The table in README.md, made from a bench's document, between two marks; nothing else of the file changes.

<!-- bench speculation -->
(the table)
<!-- end of bench -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import FileError
from ...gguf.format.atomic import write_text_whole
from ..measure.environment import environment_line
from ..measure.measurement import LONG_CLASS, STRICT
from .tables import UNKNOWN, Table, markdown

_END = "<!-- end of bench -->"


def refresh_readme(readme: Path, document: Mapping[str, Any]) -> bool:
    """Puts the document's table between its marks; False when it was there already.

    Raises FileError for a file without the marks, or a document without summaries.
    """
    kind = str(document.get("bench"))
    try:
        text = readme.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{readme} cannot be read: {error.strerror or error}") from error
    start = f"<!-- bench {kind} -->"
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(_END)}", re.DOTALL)
    if not pattern.search(text):
        raise FileError(
            f"{readme} has no place for this table; write the lines '{start}' and '{_END}' where it belongs"
        )
    block = f"{start}\n{_block(document)}{_END}"
    changed = pattern.sub(lambda _: block, text)
    if changed != text:
        write_text_whole(readme, changed)
    return changed != text


def readme_table(document: Mapping[str, Any]) -> Table:
    """One row a setting: tokens per second, and times the same file without a draft, by prompt class.

    Strict settings are left out: the report has a table of theirs. Raises FileError for a document without summaries.
    """
    summaries = document.get("summaries")
    if not summaries:
        raise FileError(
            f"a document of 'bench {document.get('bench')}' has no summaries; use full, speculation, ablation"
        )
    classes = list(dict.fromkeys(c for one in summaries for c in one["by_class"] if c != LONG_CLASS))
    rows = []
    for one in (each for each in summaries if not each["name"].endswith(STRICT)):
        rate = one["tokens_per_s"]
        by_class = (_times((one["by_class"].get(c) or {}).get("speedup")) for c in classes)
        cells = (one["name"], f"{rate['median']:.1f}" if rate else UNKNOWN, _times(one["speedup"]), *by_class)
        rows.append(tuple(cells))
    environment = document["environment"]
    return Table(
        f"{environment.get('family')}: {environment_line(dict(environment))}",
        ("setting", "tokens/s", "x without a draft", *classes),
        tuple(rows),
    )


def _block(document: Mapping[str, Any]) -> str:
    """The table without a heading, and a line that says where and when."""
    table = readme_table(document)
    lines = markdown(table).splitlines()[2:]
    return "\n".join([*lines, "", f"*{table.title}; `edge-specquant bench {document['bench']}`*"]) + "\n"


def _times(found: Mapping[str, Any] | None) -> str:
    return UNKNOWN if not found else f"{found['value']:.2f}x"
