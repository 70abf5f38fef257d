"""Machines without a compiler: the kernel that a package brings is taken, proven like any other."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_specquant.native import kernel as package
from edge_specquant.native.kernel import Kernel, compile, kernel

FOLDER = Path(compile.__file__).parent


@pytest.fixture
def ahead(tmp_path: Path) -> Path:
    """Compiled as packaging does it: by the script, alone in a copy of its folder."""
    if compile.compiler() is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs a C compiler and an x86 processor")
    folder = shutil.copytree(FOLDER, tmp_path / "kernel", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    subprocess.run([sys.executable, "-I", "-S", str(folder / "compile.py")], check=True, timeout=120)
    return folder / "ahead.so"


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(package, "compiler", lambda: None)
    kernel.cache_clear()
    yield
    kernel.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_it_is_the_kernel_compiled_here(ahead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "AHEAD", ahead)
    found = kernel()
    assert isinstance(found, Kernel), found
    assert found.level == found.library.esq_best_level()


@pytest.mark.usefixtures("no_compiler")
def test_without_either_the_engine_computes_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "AHEAD", tmp_path / "none.so")
    assert "no C compiler" in str(kernel())


@pytest.mark.usefixtures("no_compiler")
def test_a_broken_one_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ahead.so").write_bytes(b"no library")
    monkeypatch.setattr(package, "AHEAD", tmp_path / "ahead.so")
    assert "cannot be loaded" in str(kernel())


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    assert "could not be compiled" in str(
        compile.compile_into(tmp_path / "k.so", [sys.executable, "-c", "raise SystemExit(1)"])
    )
    assert "could not be compiled" in str(compile.compile_into(tmp_path / "k.so", ["/no/such/compiler"]))
    assert not list(tmp_path.iterdir())


def test_what_a_killed_compilation_left_is_cleared(tmp_path: Path) -> None:
    stale, young = tmp_path / ".k.so.1.part", tmp_path / ".k.so.2.part"
    for path in (stale, young):
        path.touch()
    os.utime(stale, (0, 0))
    compile.compile_into(tmp_path / "k.so", ["/no/such/compiler"])
    assert not stale.exists() and young.exists()
