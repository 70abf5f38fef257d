"""Answers written piece by piece: by many threads, ended in any way, held up by another process."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from edge_specquant.config.settings import StoreSettings
from edge_specquant.errors import StoreError, UsageError
from edge_specquant.store import Store, open_store
from edge_specquant.store.file import files


def test_threads_that_write_at_once_each_get_their_own_text(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        conversations = [store.create(str(number)) for number in range(4)]

        def answer(conversation_id: int) -> None:
            for turn in range(5):
                store.add(conversation_id, "user", f"{conversation_id} asks {turn}")
                with store.begin(conversation_id) as writer:
                    for piece in range(200):
                        writer.append(f"{conversation_id}.{turn}.{piece} ")

        threads = [threading.Thread(target=answer, args=(c.id,)) for c in conversations]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for c in conversations:
            messages = store.messages(c.id)
            assert [m.text for m in messages[::2]] == [f"{c.id} asks {turn}" for turn in range(5)]
            for turn, message in enumerate(messages[1::2]):
                assert message.text == "".join(f"{c.id}.{turn}.{piece} " for piece in range(200))
                assert message.status == "complete"


@pytest.mark.parametrize(
    ("raised", "status"), [(None, "complete"), (KeyboardInterrupt(), "interrupted"), (RuntimeError("no"), "error")]
)
def test_how_a_message_ends_is_kept(raised: BaseException | None, status: str) -> None:
    with Store.in_memory() as store:
        try:
            with store.begin(store.create().id) as writer:
                writer.append("so far")
                if raised is not None:
                    raise raised
        except (KeyboardInterrupt, RuntimeError):
            pass
        message = store.message(writer.message_id)
        assert (message.text, message.status) == ("so far", status)
        assert message.record == ({"error": "no"} if status == "error" else {})
        with pytest.raises(UsageError):
            writer.append("late")
        writer.finish({"ignored": True})
        assert store.message(writer.message_id) == message


def test_closing_the_store_ends_open_answers_as_interrupted(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        writer = store.begin(store.create().id)
        writer.append("so far")
    with Store.open(tmp_path / "s.db") as store:
        message = store.message(writer.message_id)
        assert (message.text, message.status) == ("so far", "interrupted")


def test_the_text_reaches_the_file_without_another_token(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store, Store.open(tmp_path / "s.db") as reader:
        writer = store.begin(store.create().id)
        writer.append("the last token")
        tick = threading.Event()
        while not (seen := reader.message(writer.message_id)).text:
            tick.wait(0.02)
        assert (seen.text, seen.status) == ("the last token", "streaming")


def test_a_writer_taken_for_dead_says_that_it_lives(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        writer = store.begin(store.create().id)
        beside = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        beside.execute("UPDATE message SET status = 'interrupted', writer = NULL")  # as another container would
        beside.close()
        writer.append("alive")
        writer.flush()
        assert store.message(writer.message_id).status == "streaming"
        writer.finish()
        assert store.message(writer.message_id).status == "complete"


def test_a_file_held_by_another_process_delays_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_TIMEOUT_S", 0.05)
    with Store.open(tmp_path / "s.db") as store:
        writer = store.begin(store.create().id)
        holder = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        writer.append("kept")
        with pytest.raises(StoreError, match="another process"):
            writer.finish()
        holder.execute("ROLLBACK")
        holder.close()
        writer.append(" and more")
        writer.finish({"target": "f16"})
        message = store.message(writer.message_id)
        assert (message.text, message.status, message.record) == ("kept and more", "complete", {"target": "f16"})
        assert not store.is_in_memory and store.notice is None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("database or disk is full", "unwritable"),
        ("attempt to write a readonly database", "unwritable"),
        ("disk I/O error", "unwritable"),
        ("unable to open database file", "unwritable"),
        ("database is locked", "busy"),
        ("database disk image is malformed", "damaged"),
        ("file is not a database", "damaged"),
        ("no such table: x", "other"),
    ],
)
def test_errors_without_a_code_are_told_apart_too(words: str, kind: str) -> None:
    assert files.kind_of(sqlite3.OperationalError(words)) == kind  # Python 3.10 gives no code


def test_the_settings_name_the_store(tmp_path: Path) -> None:
    with open_store(StoreSettings(enabled=False)) as store:
        assert store.is_in_memory and store.path is None and store.notice is None
    with open_store(StoreSettings(path=str(tmp_path / "mine.db"))) as store:
        assert store.path == tmp_path / "mine.db" and not store.is_in_memory
