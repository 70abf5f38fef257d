"""The form that a reply must have, as plain values: a request's schema, regular expression, Lark or GBNF grammar.

Schemas are exact already (`schema.py`). Knows no library; two equal forms compile to the same matcher.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...errors import GrammarError
from ...request import Request
from .schema import exact

MAX_TEXT = 64 << 10
MAX_NESTING = 200  # of brackets in a grammar: its readers recurse
GBNF, LARK, REGEX, SCHEMA = "gbnf", "lark", "regex", "schema"


@dataclass(frozen=True, slots=True)
class Form:
    """kind says what text is: a schema's text is JSON. schemas: label and JSON of each that a Lark text calls @s0, @s1
    and so on; the label names it in errors.
    """

    kind: str
    text: str
    schemas: tuple[tuple[str, str], ...] = ()


def form_of(request: Request) -> Form | None:
    """What a request asks for; None where any text will do. Raises GrammarError."""
    if request.schema is not None:
        return Form(SCHEMA, json.dumps(exact(request.schema)))
    if request.regex is not None:
        return Form(REGEX, _within_bounds(request.regex, "the regular expression"))
    if request.lark is not None:
        schemas = tuple((label, json.dumps(exact(each, about=label))) for label, each in request.lark_schemas.items())
        return Form(LARK, _within_bounds(request.lark, "the Lark grammar"), schemas)
    if request.grammar is not None:
        return Form(GBNF, _within_bounds(request.grammar, "the grammar"))
    return None


def _within_bounds(text: str, what: str) -> str:
    n_bytes = len(text.encode("utf-8", "replace"))
    if n_bytes > MAX_TEXT:
        raise GrammarError(f"{what} has {n_bytes:,} bytes; at most {MAX_TEXT:,} are taken")
    depth = deepest = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise GrammarError(f"{what} nests brackets deeper than {MAX_NESTING}")
    return text
