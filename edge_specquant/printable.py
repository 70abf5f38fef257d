"""Text from models, files and people, made safe for a screen: control characters are shown, never obeyed."""

from __future__ import annotations

_KEPT = {"\n", "\t"}


def shown(text: str) -> str:
    """The text with C0, C1 and DEL characters (ESC, BEL, CR, NUL ...) as their Unicode pictures or \\x codes.

    Works character by character, so that pieces of a stream may be treated one by one. Length is kept for pictures.
    """
    if text.isprintable():
        return text
    return "".join(c if c in _KEPT or not _is_control(c) else _picture(c) for c in text)


def _is_control(char: str) -> bool:
    code = ord(char)
    return code < 0x20 or 0x7F <= code < 0xA0


def _picture(char: str) -> str:
    code = ord(char)
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"\\x{code:02x}"
