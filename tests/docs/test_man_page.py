"""The man page and the list of licences follow from the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from _docs.commands import verbs  # noqa: E402 (found through the line above)
from _docs.licences import licences  # noqa: E402
from _docs.man_page import man_page  # noqa: E402


def test_every_verb_and_flag_is_on_it() -> None:
    page = man_page().replace("\\-", "-")
    for verb in verbs():
        assert verb.name in page
        assert all(names in page for names, _ in verb.options)


def test_no_line_is_taken_for_a_request() -> None:
    known = {".TH", ".SH", ".SS", ".PP", ".TP", ".B"}
    assert {line.split()[0] for line in man_page().splitlines() if line[:1] in (".", "'")} <= known


def test_man_has_nothing_to_complain_about(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not here")
    file = tmp_path / "page.1"
    file.write_text(man_page(), encoding="utf-8")
    done = subprocess.run([groff, "-man", "-ww", "-z", str(file)], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_licences_name_what_the_base_needs() -> None:
    page = licences()
    rows = dict(re.findall(r"^\| \[?([\w.-]+).*?\| ([^|]+) \|", page, re.MULTILINE))
    assert {"numpy", "click", "huggingface_hub"} <= rows.keys() and "unknown" not in rows.values()
