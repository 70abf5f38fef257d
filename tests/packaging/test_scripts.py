"""The scripts in packaging/: clean shell, a dry run that changes nothing, a way back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
SCRIPTS = sorted(PACKAGING.glob("*/*.sh"))
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these are for Linux")


def names(path: Path) -> str:
    return path.relative_to(PACKAGING).as_posix()


def run(script: Path, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "EDGE_SPECQUANT_HOME": str(home / "data")}
    command = [str(script), *arguments]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_a_dry_run_says_its_steps_and_changes_nothing(script: Path, tmp_path: Path) -> None:
    before = tree(PACKAGING)
    done = run(script, "--dry-run", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "+ " in done.stdout
    assert tree(tmp_path) == set() and tree(PACKAGING) == before


@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_help_and_wrong_options(script: Path, tmp_path: Path) -> None:
    assert "--dry-run" in run(script, "--help", home=tmp_path).stdout
    wrong = run(script, "--nonsense", home=tmp_path)
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: ") and "--nonsense" in wrong.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_every_folder_has_a_page_with_needs_and_the_way_back(script: Path) -> None:
    page = (script.parent / "README.md").read_text(encoding="utf-8")
    assert "**Needs**" in page and "**Undo**" in page and script.name in page


def test_shellcheck_has_nothing_to_say() -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not here")
    command = [shellcheck, "-x", str(PACKAGING / "lib.sh"), *map(str, SCRIPTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_jetson_dry_run_has_every_step(tmp_path: Path) -> None:
    script = PACKAGING / "jetson/setup.sh"
    done = run(script, "--dry-run", "--swap", "8", "--power-mode", "2", "--service", home=tmp_path)
    for step in (
        "fallocate -l 8G",
        "mkswap",
        "swapon",
        "nvpmodel -m 2",
        "quickstart",
        "engine.n_gpu_layers",
        "systemctl",
    ):
        assert step in done.stdout
    assert run(script, "--swap", "8; reboot", home=tmp_path).returncode == 1


def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    script = PACKAGING / "service/install.sh"
    done = run(script, "--dry-run", "--family", "my-family", home=tmp_path)
    assert "serve my-family" in done.stdout and "@" not in done.stdout.split("[Install]")[0]
    assert run(script, "--dry-run", "--family", "a b\nUser=root", home=tmp_path).returncode == 1


def test_desktop_installs_twice_and_goes_away(tmp_path: Path) -> None:
    program = tmp_path / "tools" / "edge-specquant"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "completion for $_EDGE_SPECQUANT_COMPLETE"\n', encoding="utf-8")
    program.chmod(0o755)
    copy = tmp_path / "clone"
    shutil.copytree(PACKAGING, copy / "packaging")
    script, prefix = copy / "packaging/desktop/install.sh", tmp_path / "prefix"
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def install(*arguments: str) -> str:
        command = [str(script), "--prefix", str(prefix), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    first, second = install(), install()
    assert "written" in first and "written" not in second
    assert (prefix / "bin/edge-specquant").resolve() == program
    entry = (prefix / "share/applications/edge-specquant.desktop").read_text(encoding="utf-8")
    assert f'Exec="{program}" chat' in entry
    fish = prefix / "share/fish/vendor_completions.d/edge-specquant.fish"
    assert fish.read_text(encoding="utf-8") == "completion for fish_source\n"
    install("--undo")
    assert [path for path in prefix.rglob("*") if not path.is_dir()] == []
