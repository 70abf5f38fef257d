"""Logs go to files that stay small; the screen and prompts are left alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edge_specquant.config import logs_dir
from edge_specquant.gguf.family.family import Family
from edge_specquant.native.library.log_file import LogFile
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime

SECRET = "the very private prompt"


def test_a_full_file_moves_on_and_the_oldest_goes(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log", max_bytes=100, n_kept=2)
    for number in range(20):
        log.write(f"line {number:02} {'.' * 30}\n")
    log.close()
    log.write("after the end")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["x.log", "x.log.1", "x.log.2"]
    text = "".join((tmp_path / name).read_text() for name in ("x.log.2", "x.log.1", "x.log"))
    kept = [int(line.split()[1]) for line in text.splitlines()]
    assert kept == list(range(kept[0], 20))


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    first, second = (LogFile(tmp_path / "x.log", max_bytes=1 << 20) for _ in range(2))
    for number in range(50):
        (first if number % 2 else second).write(f"{number}\n")
    first.close()
    second.close()
    assert (tmp_path / "x.log").read_text().split() == [str(number) for number in range(50)]


def test_a_log_that_cannot_be_opened_is_an_error_and_one_that_fails_later_is_silent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        LogFile(tmp_path / "file" / "x.log")


@pytest.mark.parametrize("kind", ["local", "process"])
@pytest.mark.parametrize("asked", [False, True])
def test_nothing_on_the_screen_and_no_prompt_unless_asked(tiny_family: Family, kind: str, asked: bool) -> None:
    script = f"""
        from edge_specquant import EngineOptions, Request, Runtime
        options = EngineOptions(calibrate=False, n_ctx=512, log_prompts={asked})
        with Runtime.{kind}({str(tiny_family.folder)!r}, options) as runtime:
            list(runtime.generate(Request(prompt={SECRET!r}, max_tokens=3)))
    """
    before = sum(text.count(SECRET) for text in log_texts())
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (sum(text.count(SECRET) for text in log_texts()) > before) == asked
    assert any("loading" in text for text in log_texts())


def log_texts() -> list[str]:
    return [path.read_text(errors="replace") for path in logs_dir().glob("*")]


def test_no_folder_for_logs_is_a_notice(tiny_family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").write_text("in the way")
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))
    with Runtime.local(tiny_family.folder, EngineOptions(calibrate=False, n_ctx=512)) as runtime:
        assert any("there is no log" in notice for notice in runtime.status().notices)
        assert list(runtime.generate(Request(prompt="x", max_tokens=1)))[-1].finish_reason is not None


@pytest.mark.parametrize("kind", ["local", "process"])
def test_a_family_on_disk_opens_no_socket(tiny_family: Family, kind: str) -> None:
    """Case H1: the hook sees every socket of the process, whatever library makes it."""
    script = f"""
        import sys
        opened = []
        sys.addaudithook(lambda event, args: opened.append(event) if event.startswith("socket.") else None)
        from edge_specquant import EngineOptions, Request, Runtime
        with Runtime.{kind}({str(tiny_family.folder)!r}, EngineOptions(calibrate=False, n_ctx=512)) as runtime:
            list(runtime.generate(Request(prompt="hello", max_tokens=3)))
        print(opened)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
