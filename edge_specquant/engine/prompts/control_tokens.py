"""A rendered text to token ids: markers of control tokens count where the template wrote them, and nowhere else.

Takes a `Text` and a vocabulary. What stands between two markers is tokenized in one piece, whoever wrote it, so that
ids are those of the whole text. Knows no template and no messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...native.protocol import Marker, Vocab
from .origin import Origin, Text, runs_of

_GUARDS = ("\n", "\x01", "a")
_TAG = re.compile(r"<\S+>|\[\S+\]")
_ALWAYS = re.compile(r"<\|.+\|>|<\|.+>|<.+\|>")

Known = Mapping[Origin, tuple[str, Sequence[int]]]
"""By origin, a text and the ids that it was generated with."""


def structure(vocab: Vocab, source: str) -> tuple[Marker, ...]:
    """The markers that a caller may not write: of control tokens, and of those user-defined tokens that look like a
    tag and give a conversation its form: the template writes them, or they are spelled like <|control tokens|>.
    """
    return tuple(
        marker
        for marker in vocab.markers
        if marker.is_control
        or _ALWAYS.fullmatch(marker.text)
        or (_TAG.fullmatch(marker.text) and marker.text in source)
    )


def encode(text: Text, vocab: Vocab, markers: Iterable[Marker], known: Known | None = None) -> list[int]:
    """Token ids. Known ids are used where all of their text stands in one place, white space at its ends apart."""
    plain = str.__str__(text)
    present = [marker for marker in markers if marker.text in plain]
    pieces: list[tuple[int, int, Sequence[int] | Marker]] = [*_template_markers(text, present)]
    pieces += _known_pieces(text, known or {})
    pieces.sort(key=lambda piece: piece[:2])
    ids: list[int] = []
    at, begins = 0, True
    for start, stop, piece in [*pieces, (len(plain), len(plain), ())]:
        if isinstance(piece, Marker):
            stretch = plain[at:start].rstrip() if piece.strips_left else plain[at:start]
            ids += [*_tokenized(stretch, vocab, present, begins), piece.token]
            begins = True
            while piece.strips_right and stop < len(plain) and plain[stop].isspace():
                stop += 1
        else:
            ids += [*_tokenized(plain[at:start], vocab, present, begins), *piece]
            begins = begins and start == stop
        at = stop
    return ids


def with_bos(ids: list[int], vocab: Vocab) -> list[int]:
    """The ids with BOS in front where the vocabulary wants one and the template did not write it, white space apart."""
    if not vocab.add_bos or vocab.bos is None:
        return ids
    first = next((token for token in ids if vocab.piece(token, special=True).strip()), None)
    return ids if first == vocab.bos else [vocab.bos, *ids]


def _template_markers(text: Text, present: Sequence[Marker]) -> Iterator[tuple[int, int, Marker]]:
    """Where the template wrote a marker, the longest at each place."""
    if not present:
        return
    by_text = {marker.text: marker for marker in present}
    pattern = re.compile("|".join(re.escape(each) for each in sorted(by_text, key=len, reverse=True)))
    at = 0
    for n, origin in runs_of(text):
        if origin is None:
            stretch = str.__str__(text[at : at + n])
            for found in pattern.finditer(stretch):
                yield at + found.start(), at + found.end(), by_text[found[0]]
        at += n


def _known_pieces(text: Text, known: Known) -> Iterator[tuple[int, int, Sequence[int]]]:
    at = 0
    for n, origin in runs_of(text):
        if origin in known:
            said, ids = known[origin]
            if text[at : at + n].strip() == said.strip():
                yield at, at + n, ids
        at += n


def _tokenized(stretch: str, vocab: Vocab, present: Sequence[Marker], begins: bool) -> list[int]:
    """Ids of plain text. User-defined tokens are found in it even so; those that give form are broken up before."""
    if not stretch:
        return []
    tags = [re.escape(marker.text) for marker in present if not marker.is_control and marker.text in stretch]
    cuts = [found.start() + 1 for found in re.finditer(f"(?={'|'.join(tags)})", stretch)] if tags else []
    ids: list[int] = []
    for a, b in zip([0, *cuts], [*cuts, len(stretch)], strict=True):
        ids += vocab.tokenize(stretch[a:b]) if begins and a == 0 else inside(stretch[a:b], vocab)
    return ids


def inside(stretch: str, vocab: Vocab) -> list[int]:
    """Ids of a text in the middle of another: SentencePiece puts a space before every text that it is given."""
    if not _adds_space(vocab):
        return vocab.tokenize(stretch)
    for guard in _GUARDS:
        before, ids = vocab.tokenize(guard), vocab.tokenize(guard + stretch)
        if ids[: len(before)] == before:
            return ids[len(before) :]
    return vocab.tokenize(stretch)


def _adds_space(vocab: Vocab) -> bool:
    return b"".join(vocab.piece(token) for token in vocab.tokenize("a")) != b"a"
