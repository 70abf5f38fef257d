"""Nothing that is not ours is ever deleted or overwritten: random trees, kills at every step, links, sources (J16)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_checkpoints import write_checkpoint

from edge_specquant.cli.verbs.models import command as models
from edge_specquant.errors import FamilyError
from edge_specquant.gguf.convert.convert import ConvertOptions, convert, open_source, plan_conversion
from edge_specquant.gguf.family.family import Family, family_folder, remove_family

_RIG = Path(__file__).with_name("kill_rig.py")
_SEEDS = 7
_ROOT = Path(__file__).parents[3]


def make(source: Path, name: str = "m", variants: tuple[str, ...] = ("f16",), *, force: bool = False) -> Family:
    return convert(plan_conversion(open_source(str(source)), name, variants), ConvertOptions(force=force))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(folder / "one", "llama")
    write_checkpoint(folder / "two", "qwen2")
    return folder / "one", folder / "two"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills need fork")
def test_every_byte_that_was_not_ours_is_there_after_kills_at_any_step(
    checkpoints: tuple[Path, Path], tmp_path: Path
) -> None:
    command = [sys.executable, str(_RIG), str(tmp_path / "homes"), *map(str, checkpoints), str(_SEEDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT, timeout=300)
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == _SEEDS
    assert [(run["seed"], run["lost"]) for run in runs if run["lost"]] == []
    assert [(run["seed"], run["half"]) for run in runs if run["half"]] == []
    ends = [end for run in runs for end in run["ends"]]
    assert "crashed" not in ends, done.stderr
    assert {"done", "killed", "refused"} <= set(ends)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_other_things_is_refused_and_stays(checkpoints: tuple[Path, Path], force: bool) -> None:
    folder = family_folder("m")
    shutil.copytree(checkpoints[0], folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FamilyError, match=r"did not write \(.*\).*choose another --name"):
        make(checkpoints[1], force=force)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("way", ["the folder itself", "a subfolder", "a link to it", "a link in it"])
def test_a_source_at_or_below_the_family_is_refused(checkpoints: tuple[Path, Path], tmp_path: Path, way: str) -> None:
    folder = family_folder("m")
    make(checkpoints[1])
    source = folder / "hf" / "deep"
    shutil.copytree(checkpoints[0], folder if way == "the folder itself" else source, dirs_exist_ok=True)
    if way == "a link to it":
        (tmp_path / "link").symlink_to(source)
    if way == "a link in it":
        shutil.rmtree(source)
        source.symlink_to(checkpoints[0])
    named = {"the folder itself": folder, "a link to it": tmp_path / "link"}.get(way, source)
    before = sorted(path for path in folder.rglob("*"))
    with pytest.raises(FamilyError, match="choose another --name"):
        make(named, force=True)
    assert sorted(path for path in folder.rglob("*")) == before


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_where_a_family_should_be_is_refused_and_says_what_to_do(
    checkpoints: tuple[Path, Path], tmp_path: Path, dangling: bool
) -> None:
    make(checkpoints[0])
    folder, disk = family_folder("m"), tmp_path / "other disk"
    folder.rename(disk)
    folder.symlink_to(tmp_path / "nowhere" if dangling else disk)
    for force in (False, True):
        with pytest.raises(FamilyError, match=r"is a link to .*leaves alone; .*EDGE_SPECQUANT_HOME"):
            make(checkpoints[0], force=force)
    if not dangling:
        with pytest.raises(FamilyError, match="is a link to"):
            remove_family("m")
        assert all(finding.ok for finding in Family.open("m").verify()), "a linked family can still be used"
    assert folder.is_symlink()
    assert (disk / "m-f16.gguf").is_file()


@pytest.mark.usefixtures("home")
def test_a_file_of_the_users_under_a_siblings_name_is_stepped_around(checkpoints: tuple[Path, Path]) -> None:
    make(checkpoints[0])
    mine = family_folder("m") / "m-bf16.gguf"
    mine.write_bytes(b"mine")
    family = make(checkpoints[0], variants=("f16", "bf16"))
    assert mine.read_bytes() == b"mine"
    assert family.path("bf16").name == "m-bf16-2.gguf"
    result = CliRunner().invoke(models, ["remove", "m", "--yes"])
    assert result.exit_code == 0
    assert "m-bf16.gguf" in result.output
    assert [path.name for path in family.folder.iterdir()] == ["m-bf16.gguf"]


@pytest.mark.usefixtures("home")
def test_a_replaced_family_leaves_only_the_new_one_in_one_folder(checkpoints: tuple[Path, Path]) -> None:
    make(checkpoints[0], variants=("f16", "bf16"))
    family = make(checkpoints[1], force=True)
    assert list(family.variants) == ["f16"]
    gguf = [path.name for path in family.folder.glob("*.gguf")]
    assert gguf == [family.path("f16").name]
    assert [path.name for path in family.folder.parent.iterdir() if path.is_dir()] == ["m"]


@pytest.mark.usefixtures("home")
def test_a_manifest_of_another_program_is_refused_whatever_is_asked(checkpoints: tuple[Path, Path]) -> None:
    folder = family_folder("m")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"files": ["everything"]}')
    for force in (False, True):
        with pytest.raises(FamilyError, match="format None"):
            make(checkpoints[0], force=force)
    assert (folder / "manifest.json").read_text() == '{"files": ["everything"]}'
