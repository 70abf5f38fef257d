"""A form to llguidance's own grammar, and what is wrong with it in a sentence that names schema, path and keyword.

What may take for ever (patterns, grammars by callers) is tried in a process of its own first (`trial.py`): the library
counts its work almost everywhere, but not where it looks whether patterns can meet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from llguidance import LLMatcher, LLParserLimits

from .form import LARK, REGEX, SCHEMA, Form
from .keywords import LISTS, MAPS, SCHEMAS
from .schema import pointer_of

# JSON as Python and most models write it. One spelling of what stands between values makes it a draft for nothing.
_JSON_STYLE: Any = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_WILD_KEYWORDS = ("pattern", "patternProperties", "multipleOf")
_MOST_TRIES = 300


def limits() -> LLParserLimits:
    """Wide enough for a record of a thousand optional fields; errors without the caller's text."""
    return LLParserLimits(max_items_in_row=20_000, step_max_items=500_000, verbose_errors=False)


def grammar_of(form: Form) -> str:
    """What the matcher compiles."""
    if form.kind == SCHEMA:
        return _schema_grammar(json.loads(form.text))
    if form.kind == REGEX:
        return str(LLMatcher.grammar_from_regex(_unanchored(form.text)))
    named = [{"name": f"s{i}", "json_schema": _styled(json.loads(text))} for i, (_, text) in enumerate(form.schemas)]
    return json.dumps({"grammars": [{"lark_grammar": form.text}, *named]})


def is_tame(form: Form) -> bool:
    """Whether compiling it is known to end at once."""
    own = form.kind == SCHEMA or (form.kind == LARK and form.schemas)
    texts = [form.text] if form.kind == SCHEMA else [text for _, text in form.schemas]
    return bool(own) and not any(f'"{word}"' in text for word in _WILD_KEYWORDS for text in texts)


def problem(form: Form) -> str | None:
    """Why the form cannot be used, or None."""
    labelled = [("the JSON schema", form.text)] if form.kind == SCHEMA else list(form.schemas)
    for label, text in labelled:
        schema = json.loads(text)
        if (told := _trouble(_schema_grammar(schema))) is not None:
            return _blame(label, schema, told)
    told = None if form.kind == SCHEMA else _trouble(grammar_of(form))
    return None if told is None else f"the {_NAMES.get(form.kind, 'grammar')} cannot be used: {told}"


_NAMES = {REGEX: "regular expression", LARK: "Lark grammar"}


def _trouble(grammar: str) -> str | None:
    """The library's error or first warning, shortened to a line."""
    _, told = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
    return " ".join(told[0].split())[:300] if told else None


def _schema_grammar(schema: Any) -> str:
    return str(LLMatcher.grammar_from_json_schema(_plain(schema), overrides=_JSON_STYLE))


def _plain(schema: Any) -> dict[str, Any]:
    return {} if schema is True else dict(schema)


def _styled(schema: Any) -> dict[str, Any]:
    return {**_plain(schema), "x-guidance": _JSON_STYLE}


def _unanchored(regex: str) -> str:
    """A reply is matched as a whole anyway, and the library takes no anchors."""
    regex = regex.removeprefix("^")
    return regex[:-1] if regex.endswith("$") and not regex.endswith(r"\$") else regex


def _blame(label: str, schema: Any, told: str) -> str:
    """Looks for the smallest part that fails alone, and the keyword without which it would not."""
    definitions = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    tries = iter(range(_MOST_TRIES))

    def trouble(node: Any) -> str | None:
        if next(tries, None) is None or not isinstance(node, Mapping):
            return None
        return _trouble(_schema_grammar({**node, "$defs": definitions}))

    path, node = "#", schema
    while found := next(((p, n, t) for p, n in _parts(node, path) if (t := trouble(n)) is not None), None):
        path, node, told = found
    for keyword in node if isinstance(node, Mapping) else ():
        if keyword != "$defs" and trouble({key: node[key] for key in node if key != keyword}) is None:
            return f"{label}: '{keyword}' at {path} cannot be enforced: {told}"
    return f"{label}: {path} cannot be enforced: {told}"


def _parts(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside one."""
    if not isinstance(node, Mapping):
        return
    for keyword, value in node.items():
        here = pointer_of(path, keyword)
        if keyword in SCHEMAS:
            yield here, value
        elif keyword in LISTS:
            yield from ((pointer_of(here, i), child) for i, child in enumerate(value))
        elif keyword in (*MAPS, "$defs"):
            yield from ((pointer_of(here, name), child) for name, child in value.items())
