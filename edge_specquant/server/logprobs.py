"""The engine's log-probabilities in OpenAI's two shapes, each token with the text that it is shown in.

A token whose text is held back (half a character, a possible stop) waits with it; what a stop cuts off is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..engine.events import TokenEvent, TokenLogprobs

PieceOf = Callable[[int], bytes]

_LEAST = -9999.0  # what OpenAI writes for "impossible"; JSON has no infinity


@dataclass(frozen=True, slots=True)
class Entry:
    """One token: its bytes, its log-probability, and the likeliest ones with theirs, best first."""

    token: bytes
    logprob: float
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
            self._held.append(self._entry(event.token_id, event.logprobs))
        if not event.text and event.finish_reason != "length":
            return []
        shown, self._held = self._held, []
        return shown

    def _entry(self, token: int, known: TokenLogprobs) -> Entry:
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
    """The lists of a completion. offset: characters in front of the first token (an echoed prompt)."""

    def __init__(self, piece_of: PieceOf, n_top: int, offset: int = 0) -> None:
        self._shown = Shown(piece_of, n_top)
        self._n_top = n_top
        self._offset = offset
        self._ready: list[Entry] = []

    def feed(self, event: TokenEvent) -> None:
        """Takes what the event shows."""
        self._ready += self._shown.feed(event)

    def take(self) -> dict[str, Any]:
        """The lists of what came since the last call."""
        entries, self._ready = self._ready, []
        offsets: list[int] = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(entry.token.decode("utf-8", "ignore"))
        return {
            "tokens": [token_text(entry.token) for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [_by_text(entry) for entry in entries] if self._n_top else None,
            "text_offset": offsets,
        }


def token_text(piece: bytes) -> str:
    """The token as text; bytes that are no whole character as OpenAI spells them, so that no two tokens look alike."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _by_text(entry: Entry) -> dict[str, float]:
    return {token_text(token): logprob for token, logprob in (*entry.top, (entry.token, entry.logprob))}


def _described(token: bytes, logprob: float) -> dict[str, Any]:
    return {"token": token_text(token), "logprob": logprob, "bytes": list(token)}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
