"""The form that a body asks a reply to have: OpenAI's response_format, llama.cpp's and vLLM's fields. One a request.

Gives fields of a `Request`. A schema that cannot be enforced is refused here, before anybody waits for the engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...engine.structured.schema import exact
from ...errors import GrammarError
from ..errors import bad_request
from .bodies import CommonRequest, ResponseFormat

Found = tuple[str, str, Any]
"""(name in the body, field of a Request, its value)."""

_ANY_OBJECT = {"type": "object"}
_LLGUIDANCE = "%llguidance"  # llama.cpp's mark of a Lark grammar in its field for GBNF


def form_fields(body: CommonRequest, response_format: ResponseFormat | None = None) -> dict[str, Any]:
    """Request fields, none where any text will do. Raises ApiError 400."""
    found = [*_of_format(response_format), *_of_llama(body), *_of_vllm(body)]
    if len(found) > 1:
        raise bad_request(f"{found[0][0]} and {found[1][0]} cannot be used together", found[1][0])
    for param, name, value in found:
        if name == "schema":
            check_schema(value, param)
        return {name: value}
    return {}


def check_schema(schema: Any, param: str, about: str = "the JSON schema") -> None:
    """Raises ApiError 400 naming what cannot be enforced."""
    try:
        exact(schema, about=about)
    except GrammarError as error:
        raise bad_request(str(error), param) from error


def _of_format(wanted: ResponseFormat | None) -> Iterator[Found]:
    if wanted is None or wanted.type == "text":
        return
    if wanted.json_schema is not None:
        yield "response_format.json_schema.schema", "schema", wanted.json_schema.schema_
    elif wanted.schema_ is not None:
        yield "response_format.schema", "schema", wanted.schema_
    elif wanted.type == "json_object":
        yield "response_format", "schema", _ANY_OBJECT
    else:
        raise bad_request("response_format has no json_schema", "response_format.json_schema")


def _of_llama(body: CommonRequest) -> Iterator[Found]:
    if body.json_schema is not None:
        yield "json_schema", "schema", body.json_schema
    if body.grammar is not None:
        yield _grammar("grammar", body.grammar, is_lark=body.grammar.lstrip().startswith(_LLGUIDANCE))
    if body.lark is not None:
        yield "lark", "lark", body.lark
    if body.regex is not None:
        yield "regex", "regex", body.regex


def _of_vllm(body: CommonRequest) -> Iterator[Found]:
    asked = body.structured_outputs
    if asked is not None:
        yield from _named("structured_outputs.", asked.json_, asked.regex, asked.choice, asked.grammar)
    yield from _named("guided_", body.guided_json, body.guided_regex, body.guided_choice, body.guided_grammar)


def _named(at: str, schema: Any, regex: str | None, choice: list[str] | None, grammar: str | None) -> Iterator[Found]:
    if schema is not None:
        yield f"{at}json", "schema", _parsed(schema, f"{at}json")
    if regex is not None:
        yield f"{at}regex", "regex", regex
    if choice is not None:
        yield f"{at}choice", "lark", "start: " + " | ".join(map(json.dumps, choice))
    if grammar is not None:
        yield _grammar(f"{at}grammar", grammar, is_lark="::=" not in grammar)


def _grammar(param: str, text: str, *, is_lark: bool) -> Found:
    return param, "lark" if is_lark else "grammar", text


def _parsed(schema: Any, param: str) -> Any:
    """vLLM takes a schema as text too."""
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"{param} is not JSON: {error}", param) from error
