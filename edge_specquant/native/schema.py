"""JSON schema to GBNF, by the converter that the bindings ship, with its string rules mended.

The shipped converter lets raw control characters into strings and forgets that a constant's JSON has backslashes; both
give text that is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import GrammarError
from .library.library import engine

ANY_JSON = {"type": "object"}
_ANYTHING, _ANYTHING_IN_JSON = r'[^"\\] |', r'[^"\\\x7F\x00-\x1F] |'


def schema_to_gbnf(schema: Mapping[str, Any]) -> str:
    """The grammar of a JSON schema; {} is any JSON object. Raises GrammarError."""
    engine()
    try:
        return _converted(json.loads(json.dumps(dict(schema) or ANY_JSON)))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, AssertionError) as error:
        raise GrammarError(f"the JSON schema cannot be used: {type(error).__name__}: {error}") from error


def _converted(schema: Any) -> str:
    from llama_cpp.llama_grammar import SchemaConverter

    class Converter(SchemaConverter):  # type: ignore[misc]
        """Writes constants and property names as JSON has them."""

        def _format_literal(self, literal: str) -> str:
            escaped = _unescaped(literal).replace("\\", "\\\\").replace('"', '\\"')
            return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'

    converter = Converter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    converter.visit(converter.resolve_refs(schema, "stdin"), "")
    rules: dict[str, str] = converter._rules
    for name, rule in rules.items():
        rules[name] = rule.replace(_ANYTHING, _ANYTHING_IN_JSON)
    return str(converter.format_grammar())


def _unescaped(literal: str) -> str:
    """A JSON text with its non-ASCII characters as they are: a model writes them so, and both are the same JSON."""
    try:
        return json.dumps(json.loads(literal), ensure_ascii=False)
    except ValueError:
        return literal
