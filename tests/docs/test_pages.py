"""The pages hang together: links lead somewhere, every page is in the navigation, every error class has its entry."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_specquant import errors
from edge_specquant.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("packaging/**/*.md"), *ROOT.glob("models/*.md")])
# Pages of the site that are no files in docs/; scripts/_docs/site.py makes them.
MADE = {"reference/cli.md", "reference/python.md", "contributing.md", "changelog.md"}
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def headings(page: Path) -> set[str]:
    """Anchors of a page, as mkdocs and code hosts make them."""
    found = set()
    for title in re.findall(r"^#+ +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        explicit = re.search(r"\{ *#([\w-]+) *\}", title)
        plain = re.sub(r"[^\w\s-]", "", re.sub(r"\{.*\}", "", title).strip().lower())
        found |= {explicit[1]} if explicit else set()
        found.add(re.sub(r"\s+", "-", plain))
    return found


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        if file.is_relative_to(DOCS) and file.relative_to(DOCS).as_posix() in MADE:
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in headings(file)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- .*?: ([\w/.-]+\.md)$", text, re.MULTILINE))
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert there | MADE <= listed


def test_every_error_class_has_its_entry() -> None:
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]
    anchors = headings(DOCS / "troubleshooting.md")
    assert [each.__name__ for each in classes if each.__name__.lower() not in anchors] == []


def test_an_error_names_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["models", "show", "no-such-family"])
    line = capsys.readouterr().err.strip()
    assert line.endswith("[docs/troubleshooting.md#familyerror]") and "\n" not in line


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    cli = (tmp_path / "site" / "reference" / "cli.html").read_text(encoding="utf-8")
    assert "edge-specquant models verify" in cli and "--top-p" in cli and "NAME|FILE" in cli
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?|png|svg))', text)
        assert fetched == [], "the site fetches nothing from elsewhere"
    service = (tmp_path / "site" / "install" / "service.html").read_text(encoding="utf-8")
    assert 'href="../server.html"' in service, "a link between folders stays a link"
    jetson = (tmp_path / "site" / "install" / "jetson.html").read_text(encoding="utf-8")
    assert 'href="../contributing.html"' in jetson, "a file of the root folder has a page"
