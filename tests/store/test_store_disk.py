"""Full and read-only disks: the store goes on in memory, says so, and harms no file."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_specquant.store import Store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="disks are limited with POSIX means")
is_root = os.name == "posix" and os.geteuid() == 0


def run_limited(code: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def mount(folder: Path, options: str) -> None:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False)
    if done.returncode:
        pytest.skip("tmpfs cannot be mounted here")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if not is_root:
        pytest.skip("mounting needs root")
    mount(tmp_path, "size=1m,mode=700")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_disk_that_fills_up_in_mid_answer_loses_no_token(small_disk: Path) -> None:
    path = small_disk / "s.db"
    with Store.open(path) as store:
        conversation = store.create("long")
        ask = store.add(conversation.id, "user", "tell me all")
        assert store.notice is None
        with store.begin(conversation.id) as writer:
            for number in range(3000):
                writer.append(f"{number} " + "word " * 50)
                if number % 100 == 0:
                    writer.flush()
        answer = store.messages(conversation.id)[1]
        assert answer.status == "complete"
        assert answer.text == "".join(f"{number} " + "word " * 50 for number in range(3000))
        assert store.is_in_memory and store.notice is not None and "memory only" in store.notice
        store.add(conversation.id, "user", "thanks")
        assert store.search("thanks")[0].conversation.id == conversation.id
    with Store.open(path) as store:  # what was written before the disk was full is sound
        assert store.messages(conversation.id)[0] == ask


def fill_up(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    return filler


def go_on_in_memory(store: Store, conversation_id: int) -> None:
    for number in range(100):
        store.add(conversation_id, "user", f"away {number} " + "x" * 4000)
        if store.is_in_memory:
            return
    raise AssertionError("the disk is not full")


def test_when_there_is_room_again_everything_goes_back_under_its_own_number(small_disk: Path) -> None:
    path = small_disk / "s.db"
    with Store.open(path) as store:
        kept, gone = store.create("kept"), store.create("gone")
        store.add(kept.id, "user", "before")
        filler = fill_up(small_disk)
        go_on_in_memory(store, kept.id)
        store.delete(gone.id)
        store.purge()
        writer = store.begin(kept.id)
        writer.append("half ")
        writer.flush()
        assert not store.return_to_file()
        filler.unlink()
        assert store.return_to_file()
        assert not store.is_in_memory and store.notice is None
        writer.append("whole")
        writer.finish()
        expected = store.copy(kept.id)
    with Store.open(path) as store:
        assert store.copy(kept.id) == expected and [c.id for c in store.conversations()] == [kept.id]
        assert store.messages(kept.id)[-1].text == "half whole"
        assert [hit.message.text for hit in store.search("whole") if hit.message] == ["half whole"]


def test_what_others_wrote_meanwhile_stays_beside_what_was_in_memory(small_disk: Path) -> None:
    path = small_disk / "s.db"
    store = Store.open(path)
    conversation = store.create("shared")
    filler = fill_up(small_disk)
    go_on_in_memory(store, conversation.id)
    filler.unlink()
    with Store.open(path) as other:
        other.add(conversation.id, "user", "theirs")
    assert not store.return_to_file()
    store.add(conversation.id, "user", "ours")
    store.close()
    with Store.open(path) as after:
        assert [after.messages(c.id)[-1].text for c in after.conversations()] == ["ours", "theirs"]


def test_a_disk_that_is_full_at_start(small_disk: Path) -> None:
    with (small_disk / "filler").open("wb") as filler:
        filler.write(b"\0" * (1 << 20))
    with Store.open(small_disk / "s.db") as store:
        assert store.is_in_memory and "full" in str(store.notice)
        store.add(store.create().id, "user", "goes on")


def test_a_read_only_disk_shows_the_history_and_goes_on_in_memory(small_disk: Path) -> None:
    path = small_disk / "s.db"
    with Store.open(path) as store:
        store.add(store.create("kept").id, "user", "readable")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = path.read_bytes()
    with Store.open(path) as store:
        (conversation,) = store.conversations()
        assert (conversation.title, store.search("readable")[0].excerpt) == ("kept", "readable")
        store.add(conversation.id, "user", "only here")
        assert store.is_in_memory and str(path) in str(store.notice)
    assert path.read_bytes() == before


FILE_LIMIT = """
import resource, sys
from pathlib import Path
from edge_specquant.store import Store
with Store.open(Path(sys.argv[1])) as store:
    conversation = store.create()
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for turn in range(100):
        store.add(conversation.id, "user", "x" * 5000)
    print(len(store.messages(conversation.id)), store.is_in_memory, bool(store.notice))
"""


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    assert run_limited(FILE_LIMIT, tmp_path / "s.db").split() == ["100", "True", "True"]
    with Store.open(tmp_path / "s.db") as store:
        assert 0 < store.conversations()[0].n_messages < 100 and store.notice is None


NOT_OURS = """
import os, sys
from pathlib import Path
from edge_specquant.store import Store
if os.geteuid() == 0:
    os.setuid(65534)
with Store.open(Path(sys.argv[1])) as store:
    print(store.is_in_memory, [c.title for c in store.conversations()], store.create().n_messages)
"""


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_file_and_folder_we_may_not_write(is_readable: bool) -> None:
    folder = Path(tempfile.mkdtemp())  # not tmp_path: its parents are closed to other users
    try:
        with Store.open(folder / "s.db") as store:
            store.create("theirs")
        (folder / "s.db").chmod(0o444 if is_readable else 0o000)
        folder.chmod(0o555)
        seen = run_limited(NOT_OURS, folder / "s.db")
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert seen.strip() == f"True {['theirs'] if is_readable else []} 0"


def test_a_path_that_cannot_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path, tmp_path / "file" / "s.db", tmp_path / "a\0b", Path("~nobody-of-that-name/\0")):
        with Store.open(path) as store:
            assert store.is_in_memory and store.notice
            store.create()
