"""The verbs convert and models as a user meets them: exit codes, signals, full disks, odd names (C7, C10, G1)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_checkpoints import write_checkpoint

from edge_specquant.native.selftest.tiny import write_tiny_llama

posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and resource limits of POSIX")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "a home with 'quotes'"


@pytest.fixture(scope="module")
def slow_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that writing its siblings takes a good second."""
    return write_tiny_llama(tmp_path_factory.mktemp("slow") / "slow.gguf", n_embd=1024, n_layer=3)


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from edge_specquant.cli import main; main()", *arguments]


def environment(home: Path, **variables: str) -> dict[str, str]:
    path = os.pathsep.join(sys.path)
    return {**os.environ, "EDGE_SPECQUANT_HOME": str(home), "PYTHONPATH": path, **variables}


def run(
    home: Path, *arguments: str, preexec_fn: Callable[[], None] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments),
        env=environment(home, **variables),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        preexec_fn=preexec_fn,
    )


def leftovers(home: Path) -> list[str]:
    return [path.name for path in home.rglob("*") if path.name.endswith(".partial")]


def test_convert_show_verify_list_remove(home: Path, tiny_gguf: Path) -> None:
    made = run(home, "convert", str(tiny_gguf), "--name", "model", "--no-quality", "--json")
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert set(document["variants"]) == {"f16", "q8", "q4"}
    assert "Traceback" not in made.stderr

    shown = json.loads(run(home, "models", "show", "model", "--json").stdout)
    assert shown == document
    table = run(home, "models", "show", "model").stdout
    for variant in document["variants"].values():
        assert f"{variant['bits_per_weight']:.2f}" in table

    assert run(home, "models", "verify", "model").returncode == 0
    file = Path(document["folder"]) / document["variants"]["q4"]["file"]
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    verified = run(home, "models", "verify", "model", "--json")
    assert verified.returncode == 1
    assert [finding["ok"] for finding in json.loads(verified.stdout)["findings"]] == [True, True, False]

    assert "model" in run(home, "models", "list").stdout
    assert run(home, "models", "remove", "model", "--yes").returncode == 0
    assert json.loads(run(home, "models", "list", "--json").stdout) == {"families": [], "broken": {}}


def test_a_dry_run_prints_every_tensor_and_writes_nothing(home: Path, tiny_gguf_288: Path) -> None:
    table = run(home, "convert", str(tiny_gguf_288), "--dry-run", "--variants", "q4")
    assert table.returncode == 0
    assert "288" in table.stdout
    assert "nothing was written" in table.stdout
    document = json.loads(run(home, "convert", str(tiny_gguf_288), "--dry-run", "--json").stdout)
    assert [recipe["variant"] for recipe in document["recipes"]] == ["f16", "q8", "q4"]
    assert "cannot hold" in document["recipes"][2]["fallback"]
    assert not (home / "families").exists()


@pytest.mark.parametrize("name", ["[bold]red", "[00]", "[type=x, v={'a[0]'}]", "a [link=x] b"])
def test_names_that_look_like_markup_are_shown_as_they_are(home: Path, tiny_gguf: Path, name: str) -> None:
    made = run(home, "convert", str(tiny_gguf), "--name", name, "--variants", "q4", "--no-quality")
    assert made.returncode == 0, made.stderr
    assert f"{name}: llama" in made.stdout
    assert name in run(home, "models", "list").stdout


def test_bad_input_is_one_sentence_and_exit_code_1(home: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>404</html>")
    for arguments in (
        ("convert", str(page)),
        ("convert", "nowhere.gguf"),
        ("models", "show", "nothing"),
        ("models", "verify", "[/]"),
    ):
        result = run(home, *arguments)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1


@posix_only
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_conversion_leaves_no_partial_file_and_can_go_on(
    home: Path, slow_source: Path, how: signal.Signals
) -> None:
    process = subprocess.Popen(
        command_line("convert", str(slow_source), "--name", "slow", "--no-quality"),
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(lambda: any("q8" in name for name in leftovers(home)))
    process.send_signal(how)
    code = process.wait()
    assert code == (130 if how is signal.SIGINT else -how)
    wait_for(lambda: leftovers(home) == [])  # after a kill the quantizer notices by itself
    assert json.loads(run(home, "models", "show", "slow", "--json").stdout)["variants"].keys() == {"f16"}
    assert run(home, "models", "verify", "slow").returncode == 0
    resumed = run(home, "convert", str(slow_source), "--name", "slow", "--no-quality")
    assert resumed.returncode == 0, resumed.stderr
    assert "writing f16" not in resumed.stderr
    assert "writing q8" in resumed.stderr


@posix_only
def test_a_write_that_fails_midway_keeps_the_old_family(home: Path, slow_source: Path) -> None:
    import resource

    assert run(home, "convert", str(slow_source), "--name", "slow", "--variants", "q8", "--no-quality").returncode == 0

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))

    full = run(home, "convert", str(slow_source), "--name", "slow", "--variants", "q8,q4", "--force", preexec_fn=limit)
    assert full.returncode == 1
    assert "the disk filled up while writing slow-q8-2.gguf" in full.stderr
    assert "Traceback" not in full.stderr
    assert leftovers(home) == []
    assert run(home, "models", "verify", "slow").returncode == 0


@posix_only
def test_a_disk_of_one_mebibyte(tmp_path: Path, tiny_gguf: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    mounted = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip("no right to mount a small file system here")
    try:
        result = run(disk / "home", "convert", str(tiny_gguf))
        assert result.returncode == 1
        assert "free and" in result.stderr
        assert leftovers(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@posix_only
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path, tiny_gguf: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    result = run(locked / "home", "convert", str(tiny_gguf))
    assert result.returncode == 1
    assert "failed" in result.stderr


def test_a_checkpoint_folder_with_odd_characters(home: Path, tmp_path: Path) -> None:
    """C12: spaces, an accent, an apostrophe and brackets in the source, in the data folder and in TMPDIR."""
    folder = tmp_path / "it's a [dir] ünïcode 模型"
    scratch = tmp_path / "tmp d'ir é"
    scratch.mkdir()
    write_checkpoint(folder, "qwen3", n_shards=2)
    table = run(home, "convert", str(folder), "--dry-run", "--json")
    assert table.returncode == 0, table.stderr
    recipes = {recipe["variant"]: recipe for recipe in json.loads(table.stdout)["recipes"]}
    assert not (home / "families").exists()
    made = run(home, "convert", str(folder), "--imatrix", "auto", "--json", TMPDIR=str(scratch))
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    for name, variant in document["variants"].items():
        assert variant["weight_types"] == recipes[name]["weight_types"]
        assert variant["quality"]["n_tokens"] > 500
    assert document["variants"]["q4"]["imatrix"]
    assert run(home, "models", "verify", folder.name).returncode == 0
    assert list(scratch.iterdir()) == []


@posix_only
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_checkpoint_conversion_stopped_while_it_writes_leaves_nothing(
    home: Path, tmp_path: Path, how: signal.Signals
) -> None:
    folder = tmp_path / "checkpoint"
    write_checkpoint(folder, "qwen2", changes={"vocab_size": 60_000})
    process = subprocess.Popen(
        command_line("convert", str(folder), "--name", "c", "--no-quality"),
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: (home / "families" / "c").is_dir())
    process.send_signal(how)
    assert process.wait() == (130 if how is signal.SIGINT else -how)
    assert leftovers(home) == []
    assert json.loads(run(home, "models", "list", "--json").stdout)["families"] == []


def wait_for(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
