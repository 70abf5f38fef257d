"""A paste arrives whole: whatever bytes it holds, it is one event and no key.

Textual's parser looks for keys inside a paste too, so an ESC in it (a coloured log) loses text and presses Enter; and
its reader ends at the first byte that is not UTF-8. Both are mended where its drivers look them up.
"""

from __future__ import annotations

import sys
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message

from ..printable import shown

_DRIVERS = "textual.drivers."


def install() -> None:
    """To be called when the driver's module is loaded, before it reads."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_DRIVERS) and hasattr(module, "XTermParser"):
            vars(module)["XTermParser"] = WholePastes
            if hasattr(module, "getincrementaldecoder"):
                vars(module)["getincrementaldecoder"] = any_bytes


def any_bytes(encoding: str) -> Callable[[], IncrementalDecoder]:
    """A decoder that keeps a byte which is no text as a lone surrogate, for `WholePastes` to show."""
    return lambda: getincrementaldecoder(encoding)("surrogateescape")


class WholePastes(XTermParser):
    """Textual's parser, which sees of a paste only its two marks."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._seen = ""  # the last characters that were given to Textual's parser
        self._paste: str | None = None

    def feed(self, data: str) -> Iterable[Message]:
        """Keys and pastes in what was read; "" is the end."""
        if not data:
            yield from super().feed(data)
        while data:
            if self._paste is None:
                taken, data = self._up_to_paste(data)
                yield from super().feed(taken.translate(_NO_TEXT))
            else:
                self._paste, data = self._paste + data, ""
                text, mark, rest = _last_end(self._paste)
                if mark:
                    self._paste, data = None, rest
                    yield from self._pasted(text)

    def _up_to_paste(self, data: str) -> tuple[str, str]:
        """What comes before the inside of a paste, and the rest."""
        before = len(self._seen)
        end = (self._seen + data).find(BRACKETED_PASTE_START)
        n_taken = len(data) if end < 0 else end + len(BRACKETED_PASTE_START) - before
        self._seen = "" if end >= 0 else (self._seen + data)[1 - len(BRACKETED_PASTE_START) :]
        self._paste = "" if end >= 0 else None
        return data[:n_taken], data[n_taken:]

    def _pasted(self, text: str) -> Iterator[Message]:
        for message in super().feed(BRACKETED_PASTE_END):
            if not isinstance(message, events.Paste):
                yield message
        yield events.Paste(readable(text))


def readable(text: str) -> str:
    """A paste as it is put into a text: line ends as one character, controls and lone bytes shown."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return shown("".join(f"\\x{ord(c) - 0xDC00:02x}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in lines))


def _last_end(text: str) -> tuple[str, str, str]:
    """Text, end mark and rest. An end mark that another one follows with no beginning between was pasted itself."""
    first = text.find(BRACKETED_PASTE_END)
    if first < 0:
        return text, "", ""
    next_paste = text.find(BRACKETED_PASTE_START, first)
    end = text.rfind(BRACKETED_PASTE_END, 0, next_paste if next_paste >= 0 else len(text))
    return text[:end], BRACKETED_PASTE_END, text[end + len(BRACKETED_PASTE_END) :]


_NO_TEXT = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
