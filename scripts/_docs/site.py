"""mkdocs' hooks: pages made from the code, pages of the root folder, and a navigation of what is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from _docs.cli_reference import cli_reference  # noqa: E402 (found through the line above)
from _docs.python_reference import python_reference  # noqa: E402

FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
MADE = {"reference/cli.md": cli_reference, "reference/python.md": python_reference}


def on_config(config: Any) -> Any:
    """Pages that are listed and not there leave the navigation; pages that are there and not listed end it."""
    there = {path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")}
    there |= MADE.keys() | FROM_ROOT.keys()
    listed: set[str] = set()
    config.nav = _pruned(config.nav, there, listed)
    others = sorted(there - listed)
    if others:
        config.nav.append({"More": others})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds what is no file in docs/."""
    for uri, make in MADE.items():
        files.append(File.generated(config, uri, content=make()))
    for uri, name in FROM_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ lead to the page made from the file, if there is one, and become their text if not."""
    inside = "../" * page.file.src_uri.count("/")
    made = {name: uri for uri, name in FROM_ROOT.items()}

    def replaced(link: re.Match[str]) -> str:
        return f"[{link[1]}]({inside}{made[link[2]]})" if link[2] in made else link[1]

    return re.sub(rf"\[([^\]]+)\]\({re.escape(inside)}\.\./([^)]*)\)", replaced, markdown)


def _pruned(entries: list[Any], there: set[str], listed: set[str]) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            inner = _pruned(target, there, listed)
            kept += [{title: inner}] if inner else []
        elif target in there:
            listed.add(target)
            kept.append(entry)
    return kept
