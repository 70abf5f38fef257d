"""The README's table is replaced between its marks, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_specquant.bench.reports.readme_table import refresh_readme
from edge_specquant.errors import FileError

ENVIRONMENT = {
    "family": "demo",
    "cpu": "Xeon",
    "n_threads": 2,
    "n_cores": 2,
    "engine": "e 1; f",
    "date": "2026-01-02T03",
}
README = "# Title\n\nbefore\n\n<!-- bench speculation -->\nold | \\1 table\n<!-- end of bench -->\n\nafter\n"


def _document(rate: float) -> dict[str, Any]:
    speedup = {"value": 1.234, "low": None, "high": None, "n": 1}
    classes = {"story": {"speedup": speedup}, "edit this code": {"speedup": None}, "long prompt": {"speedup": speedup}}
    summary = {"name": "f16 | x", "tokens_per_s": {"median": rate}, "speedup": speedup, "by_class": classes}
    summaries = [summary, summary | {"name": "f16 goodput, strict"}]
    return {"bench": "speculation", "summaries": summaries, "environment": ENVIRONMENT}


def test_the_table_and_its_place(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(README, encoding="utf-8")
    assert refresh_readme(readme, _document(12.34))
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\nbefore\n\n<!-- bench speculation -->\n") and text.endswith("-->\n\nafter\n")
    assert "| f16 \\| x | 12.3 | 1.23x | 1.23x | — |" in text and "old" not in text
    assert "Xeon" in text and "2026-01-02" in text and "long prompt" not in text and "strict" not in text
    assert not refresh_readme(readme, _document(12.34))
    assert refresh_readme(readme, _document(99))


def test_a_file_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing", encoding="utf-8")
    with pytest.raises(FileError, match="has no place for this table"):
        refresh_readme(readme, _document(1))
    with pytest.raises(FileError, match="has no summaries"):
        readme.write_text(README, encoding="utf-8")
        refresh_readme(readme, _document(1) | {"summaries": []})
    assert readme.read_text(encoding="utf-8") == README
