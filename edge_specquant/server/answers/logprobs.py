"""The engine's log-probabilities in OpenAI's two shapes, each token with the text that it is shown in.

A token whose text is held back (half a character, a possible stop) waits with it; what a stop cuts off is not told.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...engine.events import TokenEvent, TokenLogprobs

PieceOf = Callable[[int], bytes]

_LEAST = -9999.0  # what OpenAI writes for "impossible"; JSON has no infinity


@dataclass(frozen=True, slots=True)
class Entry:
    """One token: its bytes, its log-probability, and the likeliest ones with theirs, best first.

    logprob is None for the first token of an echoed prompt.
    """

    token: bytes
    logprob: float | None
    top: tuple[tuple[bytes, float], ...]


class Shown:
    """Entries of tokens that are shown; n_top of the likeliest each."""

    def __init__(self, piece_of: PieceOf, n_top: int) -> None:
        self._piece_of = piece_of
        self._n_top = n_top
        self._held: list[Entry] = []

    def feed(self, event: TokenEvent) -> list[Entry]:
        """The entries that belong to the event's text, and to that held back before it."""
        if event.token_id is not None and event.logprobs is not None:
            self._held.append(self.entry(event.token_id, event.logprobs))
        if not event.text and event.finish_reason != "length":
            return []
        shown, self._held = self._held, []
        return shown

    def entry(self, token: int, known: TokenLogprobs | None) -> Entry:
        """A token with what is known of it."""
        if known is None:
            return Entry(self._piece_of(token), None, ())
        top = tuple((self._piece_of(other), _finite(logprob)) for other, logprob in known.top[: self._n_top])
        return Entry(self._piece_of(token), _finite(known.logprob), top)


class ChatLogprobs:
    """The entries of a chat."""

    def __init__(self, piece_of: PieceOf, n_top: int) -> None:
        self._shown = Shown(piece_of, n_top)

    def feed(self, event: TokenEvent) -> list[dict[str, Any]]:
        """OpenAI's entries for what the event shows."""
        return [
            {**_described(entry.token, entry.logprob), "top_logprobs": [_described(*other) for other in entry.top]}
            for entry in self._shown.feed(event)
        ]


class CompletionLogprobs:
    """The lists of a completion. n_echoed: characters of an echoed prompt; its tokens come first then.

    With an echo the token that ends the reply is listed too: whoever scores prompts asks for one token more and drops
    the last entry, whatever it is.
    """

    def __init__(self, piece_of: PieceOf, n_top: int, n_echoed: int | None = None) -> None:
        self._shown = Shown(piece_of, n_top)
        self._n_top = n_top
        self._n_echoed = n_echoed
        self._place = _Place(n_echoed or 0)
        self._ready: list[tuple[Entry, int]] = []

    def feed(self, event: TokenEvent) -> None:
        """Takes what the event shows."""
        if event.prompt is not None:
            self._echo([self._shown.entry(each.token_id, each.logprobs) for each in event.prompt])
        for entry in self._shown.feed(event):
            self._ready.append((entry, self._place.of(entry.token)))
        if event.end_token is not None and event.logprobs is not None and self._n_echoed is not None:
            self._ready.append((self._shown.entry(event.end_token, event.logprobs), self._place.n_characters))

    def take(self) -> dict[str, Any]:
        """The lists of what came since the last call."""
        ready, self._ready = self._ready, []
        return {
            "tokens": [token_text(entry.token) for entry, _ in ready],
            "token_logprobs": [entry.logprob for entry, _ in ready],
            "top_logprobs": [_by_text(entry) for entry, _ in ready] if self._n_top else None,
            "text_offset": [offset for _, offset in ready],
        }

    def _echo(self, entries: list[Entry]) -> None:
        """Offsets are counted from the prompt's end: a BOS that was put in front has no place in its text."""
        place = _Place()
        offsets = [place.of(entry.token) for entry in entries]
        n_in_front = place.n_characters - self._place.n_characters
        self._ready += [(entry, max(0, offset - n_in_front)) for entry, offset in zip(entries, offsets, strict=True)]


class _Place:
    """Where tokens begin in a text, in characters: one that begins inside a character has that character's place."""

    def __init__(self, n_characters: int = 0) -> None:
        self.n_characters = n_characters
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, piece: bytes) -> int:
        """The place of the next token."""
        first = self._decoder.decode(piece[:1])
        is_whole = bool(piece) and not self._decoder.getstate()[0]
        begins = self.n_characters + len(first) - is_whole
        self.n_characters += len(first) + len(self._decoder.decode(piece[1:]))
        return begins


def token_text(piece: bytes) -> str:
    """The token as text; bytes that are no whole character as OpenAI spells them, so that no two tokens look alike."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _by_text(entry: Entry) -> dict[str, float] | None:
    if entry.logprob is None:
        return None
    return {token_text(token): logprob for token, logprob in (*entry.top, (entry.token, entry.logprob))}


def _described(token: bytes, logprob: float | None) -> dict[str, Any]:
    return {"token": token_text(token), "logprob": logprob, "bytes": list(token)}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
