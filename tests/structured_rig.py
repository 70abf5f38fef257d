"""Helpers for structured replies: does a schema's constraint let a JSON text through? Over bytes, so at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from edge_specquant.engine.constraint import Constraint, Constraints
from edge_specquant.engine.structured.form import form_of
from edge_specquant.native.fake import FakeVocab
from edge_specquant.request import Request

VOCAB = FakeVocab()
_CONSTRAINTS = Constraints()


def constraint(**form: Any) -> Constraint:
    """The constraint of a request's form. Raises GrammarError."""
    made = form_of(Request(prompt="x", **form))
    assert made is not None
    return _CONSTRAINTS.constraint(made, VOCAB)


def lets_through(machine: Constraint, text: str) -> bool:
    """Whether the text, and then the end, may be written."""
    tokens = [*text.encode(), VOCAB.eos or 0]
    return machine.validate(tokens) == len(tokens)


def accepts(schema: Any, value: Any) -> bool:
    """Whether the schema's constraint lets the value through in its canonical JSON."""
    return lets_through(constraint(schema=schema), canonical(value, schema))


def canonical(value: Any, schema: Any = None) -> str:
    """JSON as replies have it: names in the schema's order, whole numbers without a point, none with an exponent."""
    return _written(value, _names(schema))


def _names(node: Any) -> list[str]:
    """Property names in the order in which a schema mentions them."""
    found: dict[str, None] = {}
    if isinstance(node, Mapping):
        for key, child in node.items():
            if key == "properties" and isinstance(child, Mapping):
                found |= dict.fromkeys(child)
            found |= dict.fromkeys(_names(child))
        found |= dict.fromkeys(name for name in node.get("required", ()) if isinstance(name, str))
    elif isinstance(node, list):
        for child in node:
            found |= dict.fromkeys(_names(child))
    return list(found)


def _written(value: Any, order: list[str]) -> str:
    if isinstance(value, Mapping):
        names = sorted(value, key=lambda name: order.index(name) if name in order else len(order))
        return "{" + ", ".join(f"{json.dumps(n, ensure_ascii=False)}: {_written(value[n], order)}" for n in names) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_written(child, order) for child in value) + "]"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")
    return json.dumps(value, ensure_ascii=False)
