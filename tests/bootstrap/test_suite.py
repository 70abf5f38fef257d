"""The whole suite's temporary folder: a space in it, gone after success, there after a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edge_specquant.bootstrap.suite import run_whole_suite


@pytest.mark.parametrize("outcome, status", [("True", 0), ("False", 1)])
def test_the_folder_has_a_space_and_stays_after_a_failure_only(outcome: str, status: int, tmp_path: Path) -> None:
    where = tmp_path / "where"
    code = f"def test(tmp_path):\n    open({str(where)!r}, 'w').write(str(tmp_path))\n    assert {outcome}\n"
    (tmp_path / "test_one.py").write_text(code, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text("def pytest_xdist_auto_num_workers():\n    return 1\n", encoding="utf-8")
    assert run_whole_suite(tmp_path, Path(sys.executable)) == status
    used = Path(where.read_text(encoding="utf-8"))
    assert " " in str(used) and used.exists() == (status == 1)
