"""Which part of a reply each token belongs to, thought or answer: a machine that is a function of the tokens alone.

So it can be run twice (by the sampler, which must know before it chooses, and by the loop, which tells) and forked for
a drafter. `forced` is the token that must come next: how a thought is closed when its budget is spent. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from ...native.protocol import Vocab
from ..prompts.control_tokens import inside
from .style import HARMONY, Style, Wish

THOUGHT, ANSWER = "thought", "answer"


class Taken(NamedTuple):
    """What a token was: its part, and the bytes that it adds to the thought's text and to the answer's."""

    part: str
    thought: bytes = b""
    answer: bytes = b""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A marker: its one token, or None where the vocabulary spells it in several; ids spells it either way."""

    text: bytes
    ids: tuple[int, ...]
    token: int | None


class Parts:
    """The state of one reply. budget None is no limit; tokens of the markers are not counted.

    n_tokens: tokens taken before the answer began. Everything between thought and answer (markers, white space) counts
    as thought, so that the answer's ids are those that a template writes again.
    """

    def __init__(self, vocab: Vocab, budget: int | None, state: str) -> None:
        self.n_tokens = 0
        self._piece: Callable[[int], bytes] = vocab.piece
        self._budget = budget
        self._state = state
        self._queue: tuple[int, ...] = ()
        self._n = 0

    @property
    def forced(self) -> int | None:
        """The token that must come next."""
        return self._queue[0] if self._queue else None

    @property
    def is_answering(self) -> bool:
        """Whether the next token is the answer's."""
        return self._state == ANSWER

    @property
    def opener(self) -> int | None:
        """The token by which the reply may still open a thought; without it the next one is the answer's."""
        return None

    def accept(self, token: int) -> Taken:
        """Takes the next token."""
        self._queue = self._queue[1:] if token == self.forced else ()
        taken = self._take(token)
        self.n_tokens += taken.part == THOUGHT
        return taken

    def flush(self) -> Taken:
        """What was held back, at the end of the reply."""
        return Taken(ANSWER)

    def fork(self) -> Parts:
        """A copy in the same state."""
        return copy(self)

    def bind(self) -> None:
        """The answer has a form, so it begins right behind the thought and the white space of the template."""

    def _take(self, token: int) -> Taken:
        raise NotImplementedError

    def _spend(self, closers: Sequence[int]) -> None:
        """One more token of the thought; the budget's last one is followed by the closers."""
        self._n += 1
        if self._budget is not None and self._n >= self._budget and not self._queue:
            self._queue = tuple(closers)


class PairParts(Parts):
    """Thoughts between two markers. The reply may begin in a thought that the template opened, or open one itself."""

    def __init__(self, style: Style, vocab: Vocab, budget: int | None) -> None:
        super().__init__(vocab, budget, "start")
        self._open, self._close = (_mark(text, vocab) for text in (style.opening, style.closing))
        self._gap = tuple(inside(style.gap, vocab)) if style.gap else ()
        self._closers = (*inside("\n", vocab), *self._close.ids, *self._gap)
        self._empty = (*inside("\n\n", vocab), *self._close.ids, *self._gap)
        self._held = b""
        self._is_bound = False

    @property
    def opener(self) -> int | None:
        return self._open.ids[0] if self._state == "start" and not self._queue and not self._held else None

    def begin(self, prompt: Sequence[int], think: str, *, continues: bool) -> None:
        """Reads the prompt's end. continues: it ends within a message of the model."""
        self._state = self._state_after(prompt)
        if self._state == "start" and continues:
            self._state = ANSWER
        if self._state == "start" and (think == "off" or self._budget == 0):
            self._queue = (*self._open.ids, *self._empty)
        elif self._state == "start" and think == "on":
            self._queue = self._open.ids
        elif self._state == THOUGHT and (think == "off" or self._budget == 0):
            self._queue = self._closers

    def bind(self) -> None:
        self._is_bound = True

    @property
    def _is_bound_here(self) -> bool:
        return self._is_bound and not self._queue

    def flush(self) -> Taken:
        held, self._held = self._held, b""
        return Taken(THOUGHT, thought=held) if self._state == THOUGHT else Taken(ANSWER, answer=held)

    def _take(self, token: int) -> Taken:
        if self._state == ANSWER:
            return Taken(ANSWER, answer=self._piece(token))
        if self._state == "start":
            return self._started(token)
        if self._state == THOUGHT:
            return self._thought(token)
        return self._between(token)

    def _started(self, token: int) -> Taken:
        """Until the opening, or anything but white space."""
        if self._open.token is not None:
            if token == self._open.token:
                self._state = THOUGHT
                return Taken(THOUGHT)
            piece = self._piece(token)
            self._state = "start" if piece.isspace() and not self._is_bound_here else ANSWER
            return Taken(ANSWER, answer=piece)
        self._held += self._piece(token)
        said = self._held.lstrip()
        if said.startswith(self._open.text):
            self._state, self._held = THOUGHT, b""
            return Taken(THOUGHT, thought=said[len(self._open.text) :])
        if said and self._open.text.startswith(said):
            if self._is_bound_here:  # half an opening is an opening
                n_said = len(self._open.text) - len(said)
                self._queue = _rest(self._open, n_said, self._piece)
            return Taken(THOUGHT)
        self._state = ANSWER if said or self._is_bound_here else "start"
        held, self._held = self._held, b""
        self.n_tokens = 0  # what looked like an opening was none
        return Taken(ANSWER, answer=held)

    def _thought(self, token: int) -> Taken:
        if self._close.token is not None:
            if token == self._close.token:
                return self._closed(b"")
            self._spend(self._closers)
            return Taken(THOUGHT, thought=self._piece(token))
        self._held += self._piece(token)
        before, found, after = self._held.partition(self._close.text)
        if found:
            self._held = b""
            return self._closed(before, after)
        n_held = _overlap(self._held, self._close.text)
        certain, self._held = self._held[: len(self._held) - n_held], self._held[len(self._held) - n_held :]
        self._spend(self._closers)
        return Taken(THOUGHT, thought=certain)

    def _closed(self, thought: bytes, after: bytes = b"") -> Taken:
        self._state = "between"
        if self._is_bound:
            if not self._queue and not after:
                self._queue = self._gap
            self._state = "between" if self._queue else ANSWER
        if after.strip():  # the marker's last token had the answer's first letters
            self._state = ANSWER
            return Taken(ANSWER, thought=thought, answer=after.lstrip())
        return Taken(THOUGHT, thought=thought)

    def _between(self, token: int) -> Taken:
        """White space behind the thought is neither's."""
        piece = self._piece(token)
        if self._is_bound_here:
            self._state = ANSWER
        if piece.isspace():
            return Taken(THOUGHT)
        self._state = ANSWER
        return Taken(ANSWER, answer=piece)

    def _state_after(self, prompt: Sequence[int]) -> str:
        """A marker that is spelled counts at the very end alone: in front of that a caller may have written it."""
        if self._open.token is None:
            end = b"".join(self._piece(token) for token in prompt[-32:]).rstrip()
            return THOUGHT if end.endswith(self._open.text) else ANSWER if end.endswith(self._close.text) else "start"
        for at in range(len(prompt) - 1, -1, -1):
            if prompt[at] == self._open.token:
                return THOUGHT
            if prompt[at] == self._close.token:
                behind = b"".join(self._piece(token) for token in prompt[at + 1 :])
                return "start" if behind.strip() else ANSWER
        return "start"


class HarmonyParts(Parts):
    """Messages with a channel in their head: analysis is the thought, the others are the answer."""

    def __init__(self, vocab: Vocab, budget: int | None) -> None:
        super().__init__(vocab, budget, "head")
        self._start, self._channel, self._message, self._end = (_mark(text, vocab).ids[0] for text in HARMONY)
        self._final = (self._channel, *inside("final", vocab), self._message)
        self._closers = (self._end, self._start, *inside("assistant", vocab), *self._final)
        self._head = b""

    def begin(self, prompt: Sequence[int], think: str) -> None:
        """Reads the head that the prompt ends with."""
        last = next((at for at in range(len(prompt) - 1, -1, -1) if prompt[at] == self._start), len(prompt))
        for token in prompt[last:]:
            self._take(token)
        self._n, self._queue = 0, ()
        if think == "off" or self._budget == 0:
            self._queue = self._final if self._state == "head" else self._closers if self._state == THOUGHT else ()

    def _take(self, token: int) -> Taken:
        if token in (self._start, self._end):
            self._state, self._head = "head", b""
            return Taken(THOUGHT)
        if self._state == "head":
            if token == self._message:
                channel = self._head.partition(b"\0")[2].lstrip()
                self._state = THOUGHT if channel.startswith(b"analysis") else ANSWER
            else:
                self._head += b"\0" if token == self._channel else self._piece(token)
            return Taken(THOUGHT)
        if self._state == THOUGHT:
            self._spend(self._closers)
            return Taken(THOUGHT, thought=self._piece(token))
        return Taken(ANSWER, answer=self._piece(token))


def parts_of(style: Style, vocab: Vocab, prompt: Sequence[int], wish: Wish, *, continues: bool = False) -> Parts:
    """The machine at the beginning of a reply to this prompt."""
    if style.is_harmony:
        harmony = HarmonyParts(vocab, wish.budget)
        harmony.begin(prompt, wish.think)
        return harmony
    pair = PairParts(style, vocab, wish.budget)
    pair.begin(prompt, wish.think, continues=continues)
    return pair


def _mark(text: str, vocab: Vocab) -> _Mark:
    token = next((marker.token for marker in vocab.markers if marker.text == text), None)
    return _Mark(text.encode(), (token,) if token is not None else tuple(inside(text, vocab)), token)


def _rest(mark: _Mark, n_bytes: int, piece: Callable[[int], bytes]) -> tuple[int, ...]:
    """The tokens that spell the last n bytes of a marker; none where a token of it has more."""
    found: tuple[int, ...] = ()
    for token in reversed(mark.ids):
        if n_bytes <= 0:
            break
        found, n_bytes = (token, *found), n_bytes - len(piece(token))
    return found if n_bytes == 0 else ()


def _overlap(text: bytes, marker: bytes) -> int:
    """Length of the longest end of a text that a marker begins with."""
    return next((n for n in range(min(len(text), len(marker) - 1), 0, -1) if marker.startswith(text[-n:])), 0)
