"""`history`: what is kept can be listed, read, found, taken out, brought in and deleted; texts are shown verbatim."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_specquant.cli.main import main
from edge_specquant.config import store_path
from edge_specquant.store import Store

HOSTILE = "[/] [bold]x[/bold] \x1b[31mred\x1b]0;t\x07 \0 日本語 {'a': 1}"


@pytest.fixture(autouse=True)
def conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path / "home"))
    with Store.open(store_path()) as store:
        made = store.create(f"title {HOSTILE}", system="be brief")
        ask = store.add(made.id, "user", f"ask\n{HOSTILE}")
        store.add(made.id, "assistant", "first answer", record={"target": "f16"})
        store.add(made.id, "assistant", "second answer", after=ask.id)
    return made.id


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        try:
            main(["history", *map(str, arguments)])
        except SystemExit as leaving:
            assert (leaving.code or 0) == code
        else:
            assert code == 0
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return self.out


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def test_list_show_and_search_print_texts_verbatim_but_obey_no_control(run: Run, conversation: int) -> None:
    for arguments in (("list",), ("show", conversation), ("search", "日本語")):
        out = run(*arguments)
        assert "[/] [bold]x[/bold] ␛[31mred␛]0;t␇ ␀ 日本語 {'a': 1}" in out
        assert not set(out) & {"\x1b", "\x07", "\0"}
    assert "version 2 of 2" in run("show", conversation)
    assert "second answer" in run("search", "SECOND")
    assert run("search", '"', "(", "NEAR(") == "" and "nothing found" in run.err


def test_json_output_is_exact(run: Run, conversation: int) -> None:
    (listed,) = json.loads(run("list", "--json"))["conversations"]
    assert (listed["id"], listed["title"], listed["n_messages"]) == (conversation, f"title {HOSTILE}", 3)
    shown = json.loads(run("show", conversation, "--json"))
    assert [message["text"] for message in shown["messages"]] == [f"ask\n{HOSTILE}", "second answer"]
    titles = json.loads(run("search", "title", "--json"))["hits"]
    assert [(hit["conversation"], hit["message"]) for hit in titles] == [(conversation, None)]


@pytest.mark.parametrize("form", ["md", "json"])
def test_an_export_comes_back_by_import(run: Run, conversation: int, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"out.{form}"
    run("export", conversation, "-o", file)
    run("export", conversation, "-o", file, code=1)
    assert "--force" in run.err
    run("export", conversation, "-o", file, "--force")
    run("export", "--all", conversation, "-o", tmp_path / "all.md")
    assert run("export", conversation, conversation, "-o", tmp_path / "two.md", code=1) == ""
    run("import", file)
    with Store.open(store_path()) as store:
        old, new = store.copy(conversation), store.copy(conversation + 1)
        texts = [[message.text for message in store.messages(number)] for number in (conversation, conversation + 1)]
    assert texts[0] == texts[1] and (old.title, old.system) == (new.title, new.system)
    assert form == "md" or new == old


def test_export_to_a_pipe_is_the_file_and_import_reads_one(
    conversation: int, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["history", "export", "--all"])
    text = capsysbinary.readouterr().out
    assert json.loads(text)["conversations"][0]["title"] == f"title {HOSTILE}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    main(["history", "import", "-"])
    with Store.open(store_path()) as store:
        assert store.copy(conversation) == store.copy(conversation + 1)


def test_delete_restore_and_purge(run: Run, conversation: int) -> None:
    run("delete", conversation)
    assert run("list") == "" and "no conversation yet" in run.err
    assert "title" in run("list", "--deleted")
    run("restore", conversation)
    assert "title" in run("list")
    run("delete", conversation)
    assert "removed 4" in run("purge", "--yes")
    run("restore", conversation, code=1)
    run("show", 99, code=1)
    assert "no conversation 99" in run.err


@pytest.mark.parametrize("content", [b"", b"{}", b"# no comments", b"\xff\xfe", b'{"format": "x"}'])
def test_a_file_that_is_no_export_is_one_sentence(run: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "wrong"
    file.write_bytes(content)
    run("import", file, code=1)
    assert run.err.startswith("error: ") and str(file) in run.err and len(run.err.splitlines()) == 1
    run("import", tmp_path / "missing", code=1)
    assert "cannot be read" in run.err


def test_a_change_that_would_be_lost_is_refused(run: Run, conversation: int) -> None:
    path = store_path()
    path.unlink()
    path.mkdir()
    run("delete", conversation, code=1)
    assert "memory only" in run.err
    run("list")
    assert "memory only" in run.err


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs Linux and root")
def test_an_import_that_the_disk_cannot_hold_changes_nothing_and_says_so(
    run: Run, conversation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads(run("export", conversation, "--format", "json"))
    kept["conversations"][0]["messages"][0]["text"] = "word " * 500_000
    large = tmp_path / "large.json"
    large.write_text(json.dumps(kept))
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(disk))
        assert run("import", large, code=1) == ""
        assert "nothing was changed" in run.err and "memory" not in run.err
        assert run("list") == ""
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
