"""Splits a sample into prose and code, and prose into sentences and words.

Takes a text, gives its parts; a guess line by line, good enough for shares. Knows no language but the look of code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .language import is_cjk

_FENCE = re.compile(r"^\s*(```|~~~)")
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_CODE_LINE = re.compile(
    r"""^\s*(?:
        (?:async\s+)?def\s+\w+ | class\s+\w+.*[:{]\s*$ | (?:from\s+[\w.]+\s+)?import\s+[\w.{*] |
        @\w+(?:\.\w+)*(?:\(|\s*$) | (?:const|let|var)\s+\w+ |
        (?:export|public|private|static|fn|func|function|struct|enum|impl|void|int)\s+\w+.*[({;]|
        \#\s*include\b | \#!\S | (?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH)\s+\w+.*[\w(,;*]\s*$ |
        return\b.*[^.?!]$ | \}.* | \{\s*["'}].* | <\/?\w[^>]*>.* |
        (?:if|for|while|else|elif|try|except|switch|match|with)\b.*[:{]\s*$ |
        Traceback\ \(most | File\ "[^"]+",\ line\ \d+ | \w+(?:Error|Exception):\s | at\ [\w.$]+\(.*\)$ |
        \$\ \w+ | [\w.\-/]+\[\d+\]:\s | kernel:\s
    )""",
    re.VERBOSE,
)
_ASSIGNMENT = re.compile(r"^\s*[\w.\[\]'\"*&:<>, ]{1,60}\s*(?:[-+*/|&]?=|:=|<-)\s*\S")
# Sentences about code.
_PROSE_INSIDE = re.compile(r"\w{2,}[.?!] [A-Za-z]\w*[ ,]|^(?:[A-Z][a-z]+|I|A),? (?:[a-z]+,? ){4}")
_SYMBOLS = re.compile(r"[{}\[\]()=<>;|&$#@\\^~_*/%]")
_SYMBOL_SHARE = 0.18
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”»)\]]*\s+|(?<=[。！？؟।])|\n\s*\n|\n(?=\s*(?:[-*•]|\d+[.)])\s)")
_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]")
_CHARS_PER_CJK_WORD = 1.7


@dataclass(frozen=True, slots=True)
class Parts:
    """Prose and code of one sample; `code_share` counts characters that are not white space, 0 to 1."""

    prose: str
    code: str
    code_share: float


def split_code(text: str) -> Parts:
    """Sorts lines into prose and code; fenced blocks and `inline` spans are code."""
    prose: list[str] = []
    code: list[str] = []
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced or _looks_like_code(line):
            code.append(line)
        else:
            code.extend(_INLINE_CODE.findall(line))
            prose.append(_INLINE_CODE.sub("it", line))
    n_code, n_prose = _n_ink(code), _n_ink(prose)
    return Parts("\n".join(prose), "\n".join(code), n_code / max(1, n_code + n_prose))


def sentences(prose: str) -> list[str]:
    """The non-empty sentences of a text; blank lines and list items end one too."""
    return [part for part in (piece.strip() for piece in _SENTENCE_END.split(prose)) if _WORD.search(part)]


def words(text: str) -> list[str]:
    """Words and numbers, with inner apostrophes and hyphens kept."""
    return _WORD.findall(text)


def count_words(text: str, language: str) -> float:
    """Words in the text; for scripts without spaces, letters over the mean length of a word."""
    if is_cjk(language):
        return len(_LETTER.findall(text)) / _CHARS_PER_CJK_WORD
    return float(len(words(text)))


def _looks_like_code(line: str) -> bool:
    ink = line.strip()
    if not ink:
        return False
    if _PROSE_INSIDE.search(ink):
        return False
    if _CODE_LINE.match(line) or ink.endswith((";", "{", "}", "})")):
        return True
    dense = len(_SYMBOLS.findall(ink)) > _SYMBOL_SHARE * len(ink)
    if line.startswith(("    ", "\t")):
        return dense or bool(_ASSIGNMENT.match(line)) or "(" in ink
    ends_as_prose = ink.endswith((".", "?", "!", "。", "？"))
    return not ends_as_prose and len(ink) > 3 and bool(_LETTER.search(ink)) and (dense or bool(_ASSIGNMENT.match(line)))


def _n_ink(lines: list[str]) -> int:
    return sum(len(line) - line.count(" ") - line.count("\t") for line in lines)
