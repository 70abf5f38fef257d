"""JSON schema to GBNF, by the converter that the bindings ship."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import GrammarError
from .library import engine

ANY_JSON = {"type": "object"}


def schema_to_gbnf(schema: Mapping[str, Any]) -> str:
    """The grammar of a JSON schema; {} is any JSON object. Raises GrammarError."""
    engine()
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text: str = json_schema_to_gbnf(json.dumps(dict(schema) or ANY_JSON))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, AssertionError) as error:
        raise GrammarError(f"the JSON schema cannot be used: {type(error).__name__}: {error}") from error
    return text
