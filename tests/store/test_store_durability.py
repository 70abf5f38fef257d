"""What a crash, a second process, an older release, a stranger's file and a damaged file may not take away."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_specquant.store import Store
from edge_specquant.store.file import backups
from edge_specquant.store.rows import process_mark, tables

posix_only = pytest.mark.skipif(os.name != "posix", reason="modes and signals of POSIX")


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


WRITE_FOREVER = """
import sys, time
from pathlib import Path
from edge_specquant.store import Store
store = Store.open(Path(sys.argv[1]))
conversation = store.create("killed")
store.add(conversation.id, "user", "count")
writer = store.begin(conversation.id)
for number in range(10**9):
    writer.append(f"{time.monotonic()} ")
    if number % 20 == 0:
        print(time.monotonic(), flush=True)
    time.sleep(0.002)
"""


@posix_only
def test_a_killed_process_loses_at_most_half_a_second(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with run_python(WRITE_FOREVER, path) as child:
        assert child.stdout is not None
        begun = float(child.stdout.readline())
        while float(child.stdout.readline()) < begun + 0.9:
            pass
        with Store.open(path) as beside:  # alive: nobody takes the answer away from it
            assert [m.status for m in beside.messages(1)] == ["complete", "streaming"]
        last_written = max(float(line) for line in [child.stdout.readline()])
        child.send_signal(signal.SIGKILL)
    with Store.open(path) as store:
        ask, answer = store.messages(1)
        assert (ask.text, answer.status) == ("count", "interrupted")
        assert last_written - float(answer.text.split()[-1]) < 0.5
        assert store.notice is None
        assert [hit.message.id for hit in store.search(answer.text.split()[0]) if hit.message] == [answer.id]


ADD_MANY = """
import sys
from pathlib import Path
from edge_specquant.store import Store
with Store.open(Path(sys.argv[1])) as store:
    assert store.notice is None, store.notice
    conversation = store.create(sys.argv[2])
    for turn in range(40):
        store.add(conversation.id, "user", f"{sys.argv[2]} {turn}")
        with store.begin(conversation.id) as writer:
            writer.append("answer ")
            writer.append(str(turn))
"""


def test_processes_that_make_and_write_one_file_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    children = [run_python(ADD_MANY, path, name) for name in ("a", "b", "c")]
    for child in children:
        with child:
            pass
    assert [child.returncode for child in children] == [0, 0, 0]
    with Store.open(path) as store:
        conversations = store.conversations()
        assert sorted(c.title for c in conversations) == ["a", "b", "c"]
        for conversation in conversations:
            expected = [text for n in range(40) for text in (f"{conversation.title} {n}", f"answer {n}")]
            assert [message.text for message in store.messages(conversation.id)] == expected
        numbers = [m.id for c in conversations for m in store.all_messages(c.id)]
        assert len(set(numbers)) == 240


@posix_only
def test_files_and_a_new_folder_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store.open(tmp_path / "new" / "s.db") as store:
            store.add(store.create().id, "user", "private")
            store.create("x")
            with Store.open(tmp_path / "new" / "s.db") as second:
                second.create("y")
                kinds = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in (tmp_path / "new").iterdir()}
    finally:
        os.umask(before)
    assert kinds == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600, "backups": 0o700}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    copies = list((tmp_path / "new" / "backups").iterdir())
    assert [stat.S_IMODE(copy.stat().st_mode) for copy in copies] == [0o600]
    (tmp_path / "new" / "s.db").chmod(0o644)
    Store.open(tmp_path / "new" / "s.db").close()
    assert stat.S_IMODE((tmp_path / "new" / "s.db").stat().st_mode) == 0o600


def test_a_file_of_version_1_is_copied_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    old = sqlite3.connect(path, isolation_level=None)
    for statement in tables.statements_up_to(1):
        old.execute(statement)
    old.execute("INSERT INTO conversation VALUES (7, 'old', 'be brief', '{}', 1, 9, 1.0, 2.0, 5, NULL)")
    row = "(9, 7, NULL, 'user', 'from version one', 'complete', '{}', 1.0, 4, NULL, NULL)"
    old.execute(f"INSERT INTO message VALUES {row}")
    old.execute("UPDATE counter SET value = 5")
    old.close()
    with Store.open(path) as store:
        assert store.notice is None
        assert store.conversation(7).system == "be brief"
        assert [hit.message.id for hit in store.search("version one") if hit.message] == [9]
        store.add(7, "assistant", "welcome")
        assert [m.text for m in store.messages(7)] == ["from version one", "welcome"]
    (copy,) = backups.backups_of(path)
    kept = sqlite3.connect(copy)
    assert kept.execute("PRAGMA user_version").fetchone() == (1,)
    kept.close()


@pytest.mark.parametrize("made", ["PRAGMA user_version = 99", "PRAGMA application_id = 1"])
def test_a_newer_file_and_a_strangers_file_are_left_alone(tmp_path: Path, made: str) -> None:
    path = tmp_path / "s.db"
    Store.open(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(made)
    other.close()
    before = path.read_bytes()
    with Store.open(path) as store:
        assert store.is_in_memory and store.notice is not None and str(path) in store.notice
        store.create("goes on")
    assert path.read_bytes() == before


def fill(path: Path, title: str) -> None:
    with Store.open(path) as store:
        conversation = store.create(title)
        for _ in range(50):
            store.add(conversation.id, "user", "text " * 100)


@pytest.mark.parametrize("damage", ["header", "middle", "cut"])
def test_a_damaged_file_is_kept_and_the_newest_good_copy_takes_its_place(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "s.db"
    fill(path, "first")
    with Store.open(path) as store:  # a start takes the copy
        store.create("after the copy")
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:100] = b"x" * 100
    elif damage == "middle":
        content[4096:-4096] = b"\xff" * (len(content) - 8192)
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)
    with Store.open(path) as store:
        assert store.notice is not None and "damaged-1" in store.notice and not store.is_in_memory
        assert [c.title for c in store.conversations()] == ["first"]
        store.create("goes on")
    assert (tmp_path / "s.db.damaged-1").read_bytes() == bytes(content)
    with Store.open(path) as store:
        assert store.notice is None
        assert [c.title for c in store.conversations()] == ["goes on", "first"]


def test_a_damaged_copy_is_passed_over_and_without_any_a_new_store_begins(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    for title in ("one", "two", "three"):
        fill(path, title)
        for copy in backups.backups_of(path):
            os.utime(copy, (0, 0))
    newest = backups.backups_of(path)[0]
    newest.write_bytes(b"\0" * 5000)
    path.write_bytes(b"nonsense" * 1000)
    with Store.open(path) as store:
        assert [c.title for c in store.conversations()] == ["one"]
    for copy in backups.backups_of(path):
        copy.unlink()
    path.write_bytes(b"nonsense" * 1000)
    with Store.open(path) as store:
        assert store.conversations() == [] and "a new one begins" in str(store.notice)
    assert (tmp_path / "s.db.damaged-2").exists()


def test_copies_are_taken_once_a_day_when_changed_and_three_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(path, "0")
    Store.open(path).close()
    assert len(backups.backups_of(path)) == 1
    fill(path, "1")
    Store.open(path).close()
    assert len(backups.backups_of(path)) == 1  # changed, but the newest is young
    for number in range(5):
        days_away = 3 * 86400 * (-1) ** number  # a clock that jumps either way is a reason to copy, not to wait
        for copy in backups.backups_of(path):
            os.utime(copy, (time.time() + days_away,) * 2)
        fill(path, f"again {number}")
    before = backups.backups_of(path)
    assert len(before) == 3
    os.utime(before[0], (0, 0))
    Store.open(path).close()
    newer = backups.backups_of(path)
    os.utime(newer[0], (0, 0))
    Store.open(path).close()
    assert backups.backups_of(path) == newer  # old, but unchanged


def test_what_is_purged_is_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        conversation = store.create()
        store.add(conversation.id, "user", "xyzzysecret")
        store.search("xyzzysecret")
    for copy in backups.backups_of(path):
        os.utime(copy, (0, 0))
    with Store.open(path) as store:
        store.delete(conversation.id)
        store.purge()
    remains = [entry for entry in tmp_path.rglob("*") if entry.is_file() and b"xyzzy" in entry.read_bytes()]
    assert remains == []
    assert len(backups.backups_of(path)) == 1


def test_a_mark_tells_the_living_from_the_dead() -> None:
    own = process_mark.own_mark()
    assert process_mark.is_alive(own)
    pid, _, rest = own.partition(":")
    assert not process_mark.is_alive("nonsense") and not process_mark.is_alive("")
    assert not process_mark.is_alive(f"{pid}:{rest}-another-boot")
    with run_python("pass") as child:
        gone = f"{child.pid}:{rest}"
    assert not process_mark.is_alive(gone)
