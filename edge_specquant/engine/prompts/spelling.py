"""A rendered prompt token by token, each with its text and its origin: for people who want to see who wrote what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...native.protocol import Marker, Vocab
from .control_tokens import encode, with_bos
from .origin import Origin, Text, runs_of

VOCABULARY = "vocabulary"
"""The origin of what the vocabulary adds by itself: BOS, SentencePiece's first space."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """origin None is the template; of a token of several writers, the caller's."""

    id: int
    text: str
    origin: Origin
    is_marker: bool


def spelled(text: Text, vocab: Vocab, markers: Iterable[Marker]) -> list[Spelled]:
    """The tokens of a prompt."""
    markers = tuple(markers)
    form = {marker.token for marker in markers}
    data, whose = _bytes(text)
    found: list[Spelled] = []
    at = 0
    for token in with_bos(encode(text, vocab, markers), vocab):
        piece = vocab.piece(token, special=True)
        n = next((len(each) for each in (piece, piece.lstrip(b" ")) if each and data.startswith(each, at)), 0)
        origin = next((each for each in whose[at : at + n] if each is not None), None) if n else VOCABULARY
        found.append(Spelled(token, piece.decode("utf-8", "replace"), origin, token in form))
        at += n
    return found


def _bytes(text: Text) -> tuple[bytes, list[Origin]]:
    """The text in UTF-8, and whose each byte is."""
    whose: list[Origin] = []
    at = 0
    for n, origin in runs_of(text):
        whose += [origin] * len(str.__str__(text[at : at + n]).encode("utf-8", "replace"))
        at += n
    return str.__str__(text).encode("utf-8", "replace"), whose
