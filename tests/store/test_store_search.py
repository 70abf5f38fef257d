"""Search: any query is safe, any script is found, and the index answers as reading every text does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.store import Store
from edge_specquant.store.rows import search

WORDS = [
    "Hello",
    "wörld",
    "日本語の文",
    "ＦＵＬＬ",
    "straße",
    "a%b_c",
    'say "x"',
    "NEAR(a b)",
    "emoji👍🏽",
    "a\0bc",
    "NOT",
    "re:zero",
]


def found(store: Store, query: str) -> list[str]:
    return [hit.message.text for hit in store.search(query) if hit.message]


@pytest.fixture
def store():
    with Store.in_memory() as opened:
        conversation = opened.create("The title of résumé")
        for word in WORDS:
            opened.add(conversation.id, "user", f"before {word} after")
        yield opened


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_found_by_its_whole_and_its_parts_in_any_case(store: Store, word: str) -> None:
    text = f"before {word} after"
    for query in (word, word.upper(), word[1:], word[:2], word[:1]):
        assert text in found(store, query.replace('"', " "))


def test_all_words_must_occur_and_quotes_make_a_phrase(store: Store) -> None:
    assert found(store, "after HELLO") == ["before Hello after"]
    assert found(store, '"hello after"') == ["before Hello after"]
    assert found(store, '"after hello"') == []
    assert found(store, "full") == ["before ＦＵＬＬ after"]
    assert found(store, "STRASSE") == ["before straße after"]
    titles = [hit for hit in store.search("RÉSUMÉ") if hit.message is None]
    assert [hit.excerpt for hit in titles] == ["The title of résumé"]


@pytest.mark.parametrize(
    "query", ["", " ", '"', '""', "'", "*", "(", ")", "AND", "a OR", "-x", "^a", "col:", "\0", "\ud800", "%", "_", "\\"]
)
def test_no_query_is_an_error(store: Store, query: str) -> None:
    assert all(query.strip() in hit.excerpt or hit.message for hit in store.search(query))


@given(st.lists(st.text(max_size=12), max_size=6), st.text(max_size=6))
@settings(max_examples=150, deadline=None)
def test_the_index_answers_as_reading_every_text_does(texts: list[str], query: str) -> None:
    with Store.in_memory() as store:
        conversation = store.create()
        for text in texts:
            store.add(conversation.id, "user", text)
        terms = search.terms_of(query)
        expected = [text for text in reversed(texts) if terms and all(term in search.folded(text) for term in terms)]
        assert found(store, query) == expected


def test_without_fts5_the_same_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "has_index", lambda _: False)
    assert found(store, "hello") == ["before Hello after"]
    assert found(store, "日本語") == ["before 日本語の文 after"]


def test_an_edited_and_a_streamed_text_are_found_by_what_they_hold_now(store: Store) -> None:
    conversation = store.create()
    with store.begin(conversation.id) as writer:
        writer.append("unfinished sym")
        writer.flush()
        assert found(store, "unfinished") == ["unfinished sym"]
        writer.append("phony")
    assert found(store, "symphony") == ["unfinished symphony"]
    store.delete_message(writer.message_id)
    assert found(store, "symphony") == []


def test_the_excerpt_is_one_line_around_the_word(store: Store) -> None:
    conversation = store.create()
    store.add(conversation.id, "user", "x" * 500 + "\n\nthe NEEDLE\t lies\n" + "y" * 500)
    excerpt = store.search("needle")[0].excerpt
    assert "the NEEDLE lies" in excerpt and len(excerpt) < 140 and excerpt[0] == excerpt[-1] == "…"
