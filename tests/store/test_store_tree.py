"""The tree of messages, its deletions, what texts it keeps, and order without a clock."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.errors import StoreError, UsageError
from edge_specquant.store import Store


def texts(messages: list) -> list[str]:
    return [message.text for message in messages]


@pytest.fixture
def store():
    with Store.in_memory() as opened:
        yield opened


def test_an_edit_and_a_regeneration_make_branches_and_lose_nothing(store: Store) -> None:
    conversation = store.create("greetings")
    hello = store.add(conversation.id, "user", "hello")
    first = store.add(conversation.id, "assistant", "hi")
    with store.begin_beside(first.id) as writer:
        writer.append("good day")
    assert texts(store.messages(conversation.id)) == ["hello", "good day"]
    edited = store.add_beside(hello.id, "hello!")
    assert texts(store.messages(conversation.id)) == ["hello!"]
    assert texts(store.siblings(edited.id)) == ["hello", "hello!"]
    assert texts(store.show(hello.id)) == ["hello", "good day"]
    assert texts(store.show(first.id)) == ["hello", "hi"]
    assert texts(store.all_messages(conversation.id)) == ["hello", "hi", "good day", "hello!"]


def test_showing_a_branch_finds_the_leaf_last_left_there(store: Store) -> None:
    conversation = store.create()
    ask = store.add(conversation.id, "user", "ask")
    one = store.add(conversation.id, "assistant", "one")
    store.add_beside(one.id, "two")
    store.show(one.id)
    store.add_beside(ask.id, "ask again")
    assert texts(store.show(ask.id)) == ["ask", "one"]


def test_a_message_below_a_branch_not_on_show_brings_that_branch_on_show_for_good(store: Store) -> None:
    conversation = store.create()
    ask = store.add(conversation.id, "user", "ask")
    one = store.add(conversation.id, "assistant", "one")
    store.add_beside(one.id, "two")
    store.add(conversation.id, "user", "more", after=one.id)
    store.add_beside(ask.id, "ask again")
    assert texts(store.show(ask.id)) == ["ask", "one", "more"]


def test_undo_brings_back_a_branch_and_what_was_on_show(store: Store) -> None:
    conversation = store.create()
    ask = store.add(conversation.id, "user", "ask")
    answer = store.add(conversation.id, "assistant", "answer")
    store.add(conversation.id, "user", "more")
    deletion = store.delete_message(answer.id)
    assert texts(store.messages(conversation.id)) == ["ask"]
    with pytest.raises(StoreError):
        store.message(answer.id)
    store.undo(deletion)
    assert texts(store.messages(conversation.id)) == ["ask", "answer", "more"]
    inner, outer = store.delete_message(answer.id), store.delete_message(ask.id)
    assert store.messages(conversation.id) == []
    with pytest.raises(StoreError, match="first"):
        store.undo(inner)
    store.undo(outer)
    assert texts(store.messages(conversation.id)) == ["ask"]
    store.undo(inner)
    assert len(store.all_messages(conversation.id)) == 3


def test_a_deleted_conversation_is_hidden_until_undone_and_gone_once_purged(store: Store) -> None:
    kept, gone = store.create("kept"), store.create("gone")
    store.add(gone.id, "user", "secret words")
    deletion = store.delete(gone.id)
    assert [c.id for c in store.conversations()] == [kept.id]
    assert [c.id for c in store.conversations(deleted=True)] == [gone.id]
    assert store.search("secret") == []
    with pytest.raises(StoreError):
        store.add(gone.id, "user", "more")
    assert store.undo(deletion).title == "gone"
    assert len(store.search("secret")) == 1
    store.delete(gone.id)
    assert store.purge() == 2
    with pytest.raises(StoreError):
        store.undo(deletion)


def test_a_conversation_of_thousands_of_turns_opens_deletes_and_purges(store: Store) -> None:
    conversation = store.create()
    for turn in range(3000):
        store.add(conversation.id, "user", str(turn))
    path = store.messages(conversation.id)
    assert texts(path) == [str(turn) for turn in range(3000)]
    deletion = store.delete_message(path[1].id)
    assert len(store.messages(conversation.id)) == 1
    store.undo(deletion)
    store.delete(conversation.id)
    assert store.purge() == 3001


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\0b\0",
        "\x1b[31mred\x1b]0;title\x07",
        "line\r\nline\rline\n",
        "[/][bold] 'x' \"y\"; --",
        "👩‍👩‍👧 𝄞 العربية",
        "\ufeff\u2028\x85",
    ],
)
def test_texts_come_back_exactly(store: Store, text: str) -> None:
    conversation = store.create(text, system=text, preset={text: text})
    store.add(conversation.id, "user", text, record={"note": text})
    with store.begin(conversation.id) as writer:
        for character in text:
            writer.append(character)
            writer.flush()
    message, answer = store.messages(conversation.id)
    assert (message.text, message.record["note"], answer.text) == (text, text, text)
    found = store.conversation(conversation.id)
    assert (found.title, found.system, found.preset) == (text, text, {text: text})


@given(st.text(st.characters(exclude_categories=())))
@settings(max_examples=100, deadline=None)
def test_only_lone_surrogates_are_replaced(text: str) -> None:
    with Store.in_memory() as store:
        conversation = store.create()
        kept = store.add(conversation.id, "user", text).text
    assert kept == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_records_hold_unknown_numbers_as_null_and_refuse_what_is_not_json(store: Store) -> None:
    conversation = store.create()
    message = store.add(conversation.id, "assistant", "x", record={"rate": math.nan, "siblings": ("q8", "q4")})
    assert message.record == {"rate": None, "siblings": ["q8", "q4"]}
    with pytest.raises(UsageError, match="JSON"):
        store.add(conversation.id, "assistant", "x", record={"path": Path()})
    with pytest.raises(UsageError, match="robot"):
        store.add(conversation.id, "robot", "x")
    assert len(store.messages(conversation.id)) == 1


def test_order_holds_when_the_clock_jumps_back() -> None:
    years = itertools.count(2_000_000_000.0, -1e7)
    with Store.in_memory(clock=lambda: next(years)) as store:
        made = [store.create(str(number)) for number in range(5)]
        for turn in range(5):
            store.add(made[0].id, "user", str(turn))
        assert texts(store.messages(made[0].id)) == list("01234")
        assert [c.title for c in store.conversations()] == ["0", "4", "3", "2", "1"]
        store.set_pinned(made[2].id, True)
        assert store.conversations(limit=1)[0].title == "2"


def test_a_reply_goes_below_its_question_whatever_is_on_show(store: Store) -> None:
    conversation = store.create()
    ask = store.add(conversation.id, "user", "ask")
    store.add_beside(ask.id, "ask otherwise")
    with store.begin(conversation.id, after=ask.id) as writer:
        writer.append("answer")
    assert texts(store.messages(conversation.id)) == ["ask", "answer"]
    with pytest.raises(StoreError, match="not of conversation"):
        store.add(store.create().id, "user", "x", after=ask.id)
