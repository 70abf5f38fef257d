"""A bounded sample of a text, so that a book costs no more to judge than a page.

Takes any string; gives at most `MAX_CHARS` characters from its head, middle and tail, cut at white space where there is
some. Copies only what it keeps: time and memory do not grow with the text. Knows no language and no model.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_CHARS = 6000
_N_PARTS = 3
_CUT_SLACK = 40  # how far a cut may move to fall on white space
_BYTES_PER_TOKEN = 4  # English under a 50k byte-pair vocabulary; other scripts use more bytes a character, too


@dataclass(frozen=True, slots=True)
class Sample:
    """What will be judged. `n_chars` is the length of the whole text, `text` the part that is looked at."""

    text: str
    n_chars: int

    @property
    def whole(self) -> bool:
        """True when nothing was left out."""
        return len(self.text) == self.n_chars

    @property
    def scale(self) -> float:
        """Whole length over sampled length; 1 for a whole sample."""
        return self.n_chars / len(self.text) if self.text else 1.0


def take_sample(text: str, max_chars: int = MAX_CHARS) -> Sample:
    """The text itself when it is short, else three slices of equal size joined by blank lines."""
    if len(text) <= max_chars:
        return Sample(text, len(text))
    part = max_chars // _N_PARTS
    middle = (len(text) - part) // 2
    starts = (0, middle, len(text) - part)
    return Sample("\n\n".join(_trim(text[start : start + part]) for start in starts), len(text))


def clip_words(text: str, max_chars: int) -> str:
    """At most `max_chars` characters of the text's beginning, cut after a whole word where words exist."""
    return text if len(text) <= max_chars else _trim_tail(text[:max_chars])


def estimate_tokens(text: str) -> int:
    """A guess at the number of tokens for callers without a vocabulary: UTF-8 bytes over four, from a sample."""
    sample = take_sample(text)
    n_bytes = len(sample.text.encode("utf-8", "surrogatepass")) * sample.scale
    return round(n_bytes / _BYTES_PER_TOKEN)


def _trim(piece: str) -> str:
    head, _, rest = piece[:_CUT_SLACK].partition(" ")
    return _trim_tail(piece[len(head) + 1 :] if rest else piece)


def _trim_tail(piece: str) -> str:
    cut = piece.rfind(" ", len(piece) - _CUT_SLACK)
    return piece[:cut] if cut > 0 else piece
