"""A reply's tokens to the texts of its two parts: the thought's, and the answer's, in which alone stop strings count.

White space around a thought is no part of it. Without parts everything is the answer.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from ...native.protocol import Vocab
from ..text import TextStream
from .parts import ANSWER, Parts, Taken


class Shown(NamedTuple):
    """What a token adds: its part, and text that is now certain of the thought and of the answer."""

    part: str
    thought: str
    text: str


class PartedText:
    """Feed it every token of a reply, and flush it at the end."""

    def __init__(self, vocab: Vocab, stops: Sequence[str], parts: Parts | None) -> None:
        self._piece = vocab.piece
        self._parts = parts.fork() if parts is not None else None
        self._thought = _ThoughtText()
        self._answer = TextStream(stops)

    @property
    def stopped(self) -> bool:
        """Whether the answer has come to a stop string."""
        return self._answer.stopped

    @property
    def n_thought(self) -> int:
        """Tokens before the answer's first."""
        return self._parts.n_tokens if self._parts is not None else 0

    def feed(self, token: int) -> Shown:
        """Takes a token that is shown."""
        taken = self._parts.accept(token) if self._parts else Taken(ANSWER, answer=self._piece(token))
        return Shown(taken.part, self._thought.feed(taken.thought), self._answer.feed(taken.answer))

    def flush(self) -> Shown:
        """What was held back."""
        taken = self._parts.flush() if self._parts else Taken(ANSWER)
        said = self._thought.feed(taken.thought, final=True)
        return Shown(taken.part, said, self._answer.feed(taken.answer) + self._answer.flush())


class _ThoughtText:
    """Bytes to text without the white space at its ends."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._space = ""
        self._has_begun = False

    def feed(self, data: bytes, *, final: bool = False) -> str:
        text = self._space + self._decoder.decode(data, final)
        said = text.rstrip()
        self._space = text[len(said) :]
        if not said:
            return ""
        said = said if self._has_begun else said.lstrip()
        self._has_begun = True
        return said
