"""Log-probabilities in OpenAI's shapes: bytes that are no text, text that is held back, what a stop cuts off."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_rig import Rig, Served, endless, saying, serving

from edge_specquant.engine.events import PromptToken, TokenEvent, TokenLogprobs
from edge_specquant.native.fake import FakeModel
from edge_specquant.server.answers.logprobs import ChatLogprobs, CompletionLogprobs, token_text

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
BYTES = b"a\xc3\x28b\xff"


@pytest.fixture(scope="module")
def raw() -> Iterator[Served]:
    with serving(Rig(saying(BYTES)).runtime(), vocabulary=lambda: FakeModel(endless)) as served:
        yield served


def chat(**fields: Any) -> dict[str, Any]:
    base = {"model": "fake:f16", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    return {**base, "logprobs": True, "top_logprobs": 3, **fields}


def entries_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["logprobs"] is not None]
    return [entry for choice in choices for entry in choice["logprobs"]["content"]]


def test_every_byte_is_told_streamed_and_whole(raw: Served) -> None:  # B2
    _, whole, _ = raw.post(CHAT, chat())
    entries = whole["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == BYTES
    assert [entry["token"] for entry in entries] == ["a", "bytes:\\xc3", "(", "b", "bytes:\\xff"]
    assert entries_of(raw.chunks(CHAT, chat())) == entries
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["bytes"] == entry["bytes"], "greedy takes the likeliest"
        assert -0.01 < entry["logprob"] <= 0


def test_without_top_there_are_no_alternatives_and_without_logprobs_nothing(raw: Served) -> None:
    _, answer, _ = raw.post(CHAT, chat(top_logprobs=None))
    assert all(entry["top_logprobs"] == [] for entry in answer["choices"][0]["logprobs"]["content"])
    _, answer, _ = raw.post(CHAT, chat(logprobs=False, top_logprobs=None))
    assert answer["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("draft", ["q4", "lookup", "none"])
def test_draft_changes_no_logprob(raw: Served, draft: str) -> None:  # A3
    alone = raw.post(CHAT, chat(draft="none"))[1]["choices"]
    assert raw.post(CHAT, chat(draft=draft))[1]["choices"] == alone


def test_completion_lists_have_one_length_and_offsets_of_the_text(raw: Served) -> None:
    fields = {"model": "fake:q4", "prompt": "Assistant:", "temperature": 0, "max_tokens": 4, "logprobs": 2}
    _, answer, _ = raw.post(TEXT, fields)
    lists = answer["choices"][0]["logprobs"]
    assert lists["tokens"] == ["a", "bytes:\\xc3", "(", "b"]
    assert lists["text_offset"] == [0, 1, 2, 3]
    assert len(lists["token_logprobs"]) == len(lists["top_logprobs"]) == 4
    assert all(len(top) in (2, 3) for top in lists["top_logprobs"])
    streamed = [c["logprobs"] for chunk in raw.chunks(TEXT, fields) for c in chunk["choices"]]
    assert [token for part in streamed if part for token in part["tokens"]] == lists["tokens"]
    assert [place for part in streamed if part for place in part["text_offset"]] == lists["text_offset"]


def test_echo_of_ids_is_their_text(raw: Served) -> None:
    fields = {"model": "fake:q4", "prompt": [[65, 66], [0x41]], "max_tokens": 0, "echo": True}
    _, answer, _ = raw.post(TEXT, fields)
    assert [choice["text"] for choice in answer["choices"]] == ["AB", "A"]
    assert raw.post(TEXT, {**fields, "prompt": [99_999]})[0] == 400


@pytest.mark.parametrize("said", [b"yes", b""], ids=["a token follows", "the reply ends at once"])
def test_scored_prompts_as_harnesses_ask_for_them(said: bytes) -> None:
    """What lm-eval's local-completions sends and how it reads the answer: the last entry is the generated token's."""
    context, continuation = list(b"Assistant:"), list(said[:2] or b"no")
    fields = {"model": "fake:q4", "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    with serving(Rig(saying(said)).runtime(), vocabulary=lambda: FakeModel(endless)) as served:
        status, answer, _ = served.post(TEXT, {**fields, "prompt": [context + continuation, context]})
        streamed = served.chunks(TEXT, {**fields, "prompt": context})
        nothing = served.post(TEXT, {**fields, "prompt": context, "max_tokens": 0})[1]
    assert status == 200
    lists = answer["choices"][0]["logprobs"]
    assert {len(each) for each in lists.values()} == {len(context + continuation) + 1}
    assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
    scores = lists["token_logprobs"][len(context) : -1]
    is_greedy = [
        score == max(top.values()) for score, top in zip(scores, lists["top_logprobs"][len(context) :], strict=False)
    ]
    assert is_greedy == [bool(said)] * 2
    assert lists["text_offset"][: len(context)] == list(range(len(context)))
    alone = answer["choices"][1]
    assert alone["text"] == "Assistant:" + said[:1].decode()
    parts = [choice["logprobs"] for chunk in streamed for choice in chunk["choices"] if choice["logprobs"]]
    assert [token for part in parts for token in part["tokens"]] == alone["logprobs"]["tokens"]
    assert len(nothing["choices"][0]["logprobs"]["tokens"]) == len(context)
    assert nothing["usage"]["completion_tokens"] == 0


def test_a_token_in_front_of_the_text_has_no_place_in_it() -> None:
    logprobs = CompletionLogprobs(lambda token: b"<s>" if token == 1 else bytes([token]), 0, n_echoed=2)
    logprobs.feed(TokenEvent("", prompt=tuple(PromptToken(token, None) for token in (1, 97, 98))))
    assert logprobs.take()["text_offset"] == [0, 0, 1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=4) | st.sampled_from([b"\xe6\xbc", b"\xa2", b"\xf0\x9f", b"\x98\x80x"])))
def test_a_token_begins_where_its_first_byte_stands(pieces: list[bytes]) -> None:
    """Laws: in order; a token that begins a character has the number of characters before it, others the same one's."""
    logprobs = CompletionLogprobs(lambda token: pieces[token], 0)
    known = TokenLogprobs(0, 0.0, ())
    for token in range(len(pieces)):
        logprobs.feed(TokenEvent("x", token, logprobs=known))
    offsets = logprobs.take()["text_offset"]
    for i, offset in enumerate(offsets):
        before = b"".join(pieces[:i]).decode("utf-8", "replace")
        through_first = (b"".join(pieces[:i]) + pieces[i][:1]).decode("utf-8", "replace")
        assert offset == len(through_first) - 1 and offset in (len(before), len(before) - 1)


def event(text: str, token: int | None = None, finish: str | None = None) -> TokenEvent:
    known = TokenLogprobs(-0.5, -0.5, ((token, -0.5),)) if token is not None else None
    return TokenEvent(text, token, finish_reason=finish, logprobs=known)


def piece(token: int) -> bytes:
    return bytes([token])


def test_tokens_wait_with_their_text_and_a_stop_takes_them_along() -> None:  # A3
    logprobs = ChatLogprobs(piece, 1)
    assert logprobs.feed(event("", 0xC3)) == []
    assert [entry["bytes"] for entry in logprobs.feed(event("ä", 0xA4))] == [[0xC3], [0xA4]]
    assert logprobs.feed(event("", ord("S"))) == []
    assert logprobs.feed(event("", finish="stop")) == []
    other = ChatLogprobs(piece, 1)
    assert other.feed(event("", ord("S"))) == []
    assert len(other.feed(event("S", finish="length"))) == 1


def test_impossible_is_a_number_that_json_has() -> None:
    logprobs = CompletionLogprobs(piece, 1)
    logprobs.feed(TokenEvent("x", 120, logprobs=TokenLogprobs(-math.inf, -math.inf, ((121, -math.inf),))))
    taken = logprobs.take()
    assert taken["token_logprobs"] == [-9999.0]
    assert taken["top_logprobs"] == [{"y": -9999.0, "x": -9999.0}]
    assert logprobs.take()["tokens"] == []


def test_different_bytes_never_look_alike() -> None:
    shown = {token_text(bytes([byte])) for byte in range(256)}
    assert len(shown) == 256
