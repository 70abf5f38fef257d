"""Text leaves the engine in whole characters and never past a stop string, however the bytes are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_specquant.engine.text import TextStream

FAMILY_EMOJI = "a👩\u200d👩\u200d👧z漢字é"


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(st.text(), st.lists(st.integers(0, 200)))
def test_chunks_join_to_the_whole_text(text: str, cuts: list[int]) -> None:
    text = text.encode("utf-8", "replace").decode()
    stream = TextStream()
    chunks = [stream.feed(piece) for piece in cut(text.encode(), cuts)]
    assert "".join(chunks) + stream.flush() == text
    assert all("\ufffd" not in chunk for chunk in chunks) or "\ufffd" in text


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_no_chunk_ends_in_half_a_character(size: int) -> None:
    """Case B1: emoji, ZWJ sequences and CJK split over tokens."""
    data = FAMILY_EMOJI.encode()
    stream = TextStream()
    chunks = [stream.feed(data[i : i + size]) for i in range(0, len(data), size)]
    assert "".join(chunks) + stream.flush() == FAMILY_EMOJI
    assert "\ufffd" not in "".join(chunks)


@pytest.mark.parametrize("data", [b"\xc3\x28", b"\xff", b"ok\xf0\x9f"])
def test_invalid_utf8_becomes_replacement_characters(data: bytes) -> None:
    """Case B2."""
    stream = TextStream()
    text = "".join(stream.feed(bytes([b])) for b in data) + stream.flush()
    assert text == data.decode("utf-8", "replace")


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.integers(1, 4))
def test_stop_strings_cut_at_the_first_occurrence(text: str, stops: list[str], size: int) -> None:
    stream = TextStream(stops)
    out = ""
    for i in range(0, len(text), size):
        out += stream.feed(text[i : i + size].encode())
        if stream.stopped:
            break
    out += stream.flush()
    found = [text.find(s) for s in stops if s in text[: i + size] if text] if text else []
    if stream.stopped:
        first = min(at for at in (out.find(s) if s in out else len(out) for s in stops))
        assert out == text[: len(out)] and first == len(out)
        assert any(text[len(out) :].startswith(s) for s in stops)
    else:
        assert not found and out == text


def test_a_possible_stop_is_held_back_and_released() -> None:
    stream = TextStream(["STOP"])
    assert stream.feed(b"go ST") == "go "
    assert stream.feed(b"ay") == "STay"
    assert stream.flush() == ""
