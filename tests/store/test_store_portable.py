"""Files to import come from anywhere: what is exported returns, and what is wrong is named and refused whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.errors import StoreError
from edge_specquant.store import ConversationCopy, MessageCopy, Store
from edge_specquant.store.formats.markdown import from_markdown, to_markdown
from edge_specquant.store.formats.portable import from_json_text, to_json_text

TRICKY = [
    "<!-- message {} -->", "\\<!-- message {} -->", "<!-- conversation {\"a\": 1} -->\n## User\n", "## Assistant",
    "\n\n## User\n\n", "```\nunclosed", "\r\n", "-->", "", "\n", "\ufeff", "\u2028<!-- message {} -->",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(TRICKY), st.text(max_size=6)), max_size=4).map("\n".join)


@given(texts, texts, st.lists(texts, max_size=4))
@settings(max_examples=200, deadline=None)
def test_markdown_gives_back_every_text(title: str, system: str, contents: list[str]) -> None:
    messages = tuple(
        MessageCopy(place - 1 if place else None, "user", text, "complete", {}, 1.5, place)
        for place, text in enumerate(contents)
    )
    leaf = len(messages) - 1 if messages else None
    copy = ConversationCopy(title, system, {}, False, 1.5, 1.5, leaf, messages)
    assert from_markdown(to_markdown(copy)) == copy


def test_markdown_may_be_edited_by_hand_and_saved_with_cr_lf() -> None:
    with Store.in_memory() as store:
        conversation = store.create("title")
        store.add(conversation.id, "user", "one\ntwo")
        store.add(conversation.id, "assistant", "three")
        text = to_markdown(store.copy(conversation.id))
    edited = text.replace("two", "two and a half").replace("## Assistant\n\n", "").replace("\n", "\r\n")
    assert [message.text for message in from_markdown("\ufeff" + edited).messages] == ["one\ntwo and a half", "three"]


GOOD = {
    "format": "edge-specquant conversations", "version": 1,
    "conversations": [{
        "title": "t", "system": "", "preset": {}, "pinned": False, "created_at": 1, "updated_at": 2.5, "leaf": 1,
        "messages": [
            {"parent": None, "role": "user", "text": "a", "status": "complete", "record": {}, "created_at": 1,
             "seen": 0},
            {"parent": 0, "role": "assistant", "text": "b", "status": "error", "record": {}, "created_at": 1,
             "seen": 9},
        ],
    }],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "other"), (("version",), 2), (("version",), True), (("conversations",), {}),
        (("conversations", 0), None), (("conversations", 0, "title"), 3), (("conversations", 0, "leaf"), 2),
        (("conversations", 0, "leaf"), None), (("conversations", 0, "leaf"), -1),
        (("conversations", 0, "created_at"), float("nan")), (("conversations", 0, "created_at"), "now"),
        (("conversations", 0, "messages", 1, "parent"), 1), (("conversations", 0, "messages", 1, "role"), "robot"),
        (("conversations", 0, "messages", 1, "status"), "streaming"),
        (("conversations", 0, "messages", 1, "text"), None),
        (("conversations", 0, "messages", 1, "record"), []), (("conversations", 0, "messages", 1, "seen"), 1 << 70),
    ],
)  # fmt: skip
def test_json_that_is_wrong_is_refused_in_a_sentence(path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(json.dumps(GOOD))
    assert len(from_json_text(json.dumps(document))) == 1
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(StoreError):
        from_json_text(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"format": 1}', "\0"])
def test_text_that_is_no_export_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        from_json_text(text)
    with pytest.raises(StoreError):
        from_markdown(text)
    with pytest.raises(StoreError):
        from_markdown("<!-- conversation {" + text + "} -->")


def test_ranks_and_a_leaf_that_contradict_each_other_are_put_right() -> None:
    document = json.loads(json.dumps(GOOD))
    document["conversations"][0]["leaf"] = 0  # not a leaf at all
    with Store.in_memory() as store:
        (added,) = store.add_copies(from_json_text(json.dumps(document)))
        assert [message.text for message in store.messages(added.id)] == ["a", "b"]
        other = store.add_beside(store.messages(added.id)[1].id, "c")
        store.add_beside(other.parent_id, "d")
        assert [message.text for message in store.show(other.parent_id)] == ["a", "c"]


def test_an_import_that_fails_leaves_nothing_behind() -> None:
    bad = ConversationCopy("", "", {}, False, 1.0, 1.0, 0, (MessageCopy(None, "robot", "", "complete", {}, 1.0, 0),))
    with Store.in_memory() as store:
        good = store.copy(store.create("good").id)
        with pytest.raises(Exception, match="robot"):
            store.add_copies([good, bad])
        assert len(store.conversations()) == 1
        assert to_json_text([good]).endswith("}\n")
