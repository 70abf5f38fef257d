"""JSON read while it grows: a string's text, and the extent of a value. Pure; text in, text out."""

from __future__ import annotations

import json
import re

_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])')
_HIGH = re.compile(r"[\ud800-\udbff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class JsonTextDecoder:
    """The inside of a JSON string, opening quote already read, decoded up to its closing quote.

    Half of a surrogate pair becomes U+FFFD, so that what comes out can always be written as UTF-8.
    """

    def __init__(self) -> None:
        self._held = ""
        self._high = ""
        self._closed = False

    def feed(self, text: str) -> str:
        """Decoded text that is certain now."""
        if self._closed:
            return ""
        self._held += text
        out: list[str] = []
        at = 0
        while at < len(self._held):
            char = self._held[at]
            if char == '"':
                self._closed = True
                break
            if char != "\\":
                out.append(char)
                at += 1
                continue
            escape = _ESCAPE.match(self._held, at)
            if escape is None:
                break  # not whole yet
            out.append(str(json.loads(f'"{escape[0]}"')))
            at = escape.end()
        self._held = self._held[at:]
        return self._paired("".join(out))

    def _paired(self, text: str) -> str:
        """Joins surrogate pairs that arrive in two escapes; a high half at the end waits for its other half."""
        text = self._high + text
        self._high = ""
        if text and _HIGH.match(text[-1]) and not self._closed:
            text, self._high = text[:-1], text[-1]
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return _SURROGATE.sub("\ufffd", whole)


class ValueScanner:
    """Passes on the text of one JSON object or array, and nothing before it; `rest` is what comes after."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._done = False
        self.rest = ""

    def feed(self, text: str) -> str:
        """The part of the text that belongs to the value."""
        if self._depth == 0 and not self._done:
            text = text.lstrip()
        for i, char in enumerate(text):
            if self._done:
                self.rest += text[i:]
                return text[:i]
            self._step(char)
        return text

    def _step(self, char: str) -> None:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._in_string = False
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self._done = self._depth == 0
