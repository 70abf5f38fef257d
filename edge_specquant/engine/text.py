"""Bytes to text at character boundaries, and stop strings. One contract: feed bytes, take text, flush at the end.

Text that may still turn out to be the beginning of a stop string, and half of a character, is held back.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Turns a token's bytes into text that is safe to show. Invalid UTF-8 becomes U+FFFD, as Python's replace does."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def feed(self, data: bytes) -> str:
        """Text that is now certain. After a stop string `stopped` is True and nothing more comes."""
        return self._release(self._decoder.decode(data), final=False)

    def flush(self) -> str:
        """What was held back, at the end of the reply; a half character becomes U+FFFD."""
        return self._release(self._decoder.decode(b"", final=True), final=True)

    def _release(self, text: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            out, self._held = self._held[: min(found)], ""
            return out
        keep = 0 if final else self._possible_stop()
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def _possible_stop(self) -> int:
        """Length of the longest suffix that some stop string begins with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for n in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-n:]) for stop in self._stops):
                return n
        return 0
