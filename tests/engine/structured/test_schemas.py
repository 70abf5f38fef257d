"""A schema's constraint accepts exactly the valid values, or the schema is refused by path and keyword."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from structured_rig import accepts, canonical, constraint

from edge_specquant.errors import GrammarError

COLOUR = {"enum": ["red", "green"]}


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 5}, [1, 5], [0, 20, 6]),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5}, [2, 4], [1, 5]),
        ({"type": "integer", "multipleOf": 10}, [0, 20, -10], [7, 15]),
        ({"type": "number", "minimum": 0.5, "maximum": 1}, [0.5, 0.75, 1], [0.25, 1.5]),
        ({"type": ["string", "null"], "enum": ["red", "green", None]}, ["red", None], ["blue", 1]),
        ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, ["abc"], ["abcd", "A", ""]),
        ({"type": "string", "pattern": '^He said "[a-z]+"$'}, ['He said "so"'], ["He said so"]),
        ({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}, ["2026-01-31"], ["2026-1-31", "x2026-01-31"]),
        ({"type": "string", "pattern": "b"}, ["abc", "b"], ["ac", ""]),
        ({"type": "string", "pattern": "^a|b$"}, ["ax", "xb"], ["xa"]),
        ({"properties": {"a": True, "b": False}}, [{"a": 1}, {}, 5, "x"], [{"b": 1}]),
        ({"type": "object", "properties": {"a": {}}}, [{"a": [1]}, {"a": None, "c": 2}], [1]),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, [{"a": {"a": {}}}], [{"a": 1}]),
        (True, [1, None, {"a": []}], []),
        ({}, [1, "x", None, [1], {"a": 1}], []),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1, "b": 2}, {}], [{"a": "x"}]),
        ({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "integer"}]}, [{"a": 1}, 4], [{}, "x"]),
        ({"allOf": [{"$ref": "#/$defs/c"}], "$defs": {"c": COLOUR}}, ["red"], [{}, "blue"]),
        ({"allOf": [{"$ref": "#/definitions/c"}], "definitions": {"c": COLOUR}}, ["red"], ["blue"]),
        ({"$ref": "#/components/schemas/c", "components": {"schemas": {"c": COLOUR}}}, ["red"], ["blue"]),
        ({"patternProperties": {"^n": {"type": "integer"}}}, [{"n1": 1, "x": "y"}], [{"n1": "y"}]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, [[1], []], [[1, 2], ["x"]]),
        ({"const": 'a "quote" \\ \n \x1b é \u2028'}, ['a "quote" \\ \n \x1b é \u2028'], ["a"]),
        ({"const": {"a": [1, None, "é"]}}, [{"a": [1, None, "é"]}], [{"a": [1]}]),
        ({"enum": [1.0, 2.5]}, [1, 2.5], [2]),
        ({"type": "string", "maxLength": 65536}, ["x" * 300], [1]),
        ({"type": "string", "minLength": 2}, ["é\U0001f600"], ["\U0001f600"]),
        ({"type": "array", "minItems": 2, "maxItems": 3, "items": COLOUR}, [["red"] * 2], [["red"], ["red"] * 4]),
        ({"type": "array", "maxItems": 1, "uniqueItems": True}, [[1], []], [[1, 1]]),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["x", 1], [None]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-02-30", "2024-13-01"]),
        ({"type": "integer", "format": "int32"}, [1], ["x"]),
        ({"title": "t", "x-order": 1, "deprecated": True, "type": "null"}, [None], [1]),
        ({"minProperties": 1, "type": "object"}, [{"a": 1}], [{}]),
        ({"type": "object", "required": ["a", "b"], "minProperties": 2}, [{"a": 1, "b": 2}], [{"a": 1}]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1,
          "exclusiveMinimum": True}, [2], [1]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}],
          "additionalItems": False, "type": "array"}, [[1]], [["x"], [1, 2]]),
        ({"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}, "a": {"type": "integer"}},
          "$defs": {"endless": {"type": "object", "required": ["x"],
                                "properties": {"x": {"$ref": "#/$defs/endless"}}}}},
         [{"a": 1}, {}], [{"next": {}}]),
        ({"anyOf": [{"$ref": "#/$defs/e"}, {"type": "null"}], "$defs": {"e": {"$ref": "#/$defs/e"}}}, [None], [1]),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_what_the_schema_says_is_what_passes(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    for value in valid:
        assert accepts(schema, value), value
    for value in invalid:
        assert not accepts(schema, value), value


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (record(a={"uniqueItems": True}), ["uniqueItems", "#/properties/a"]),
        (record(a={"items": {"not": {"type": "string"}}}), ["not", "#/properties/a/items"]),
        (record(a={"if": {"const": 1}, "then": {"const": 2}}), ["if", "#/properties/a"]),
        (record(a={"minProperties": 2}), ["minProperties", "#/properties/a", "2"]),
        (record(a={"propertyNames": {"maxLength": 2}}), ["propertyNames"]),
        (record(a={"contains": {}}), ["contains"]),
        (record(a={"dependentRequired": {"a": ["b"]}}), ["dependentRequired"]),
        (record(a={"unevaluatedProperties": False}), ["unevaluatedProperties"]),
        (record(a={"type": "string", "format": "colour"}), ["format", "colour", "#/properties/a"]),
        (record(a={"type": "nonsense"}), ["type", "nonsense", "#/properties/a"]),
        ({"properties": 5}, ["properties"]),
        ({"$ref": "https://example.com/schema.json"}, ["$ref", "https://example.com"]),
        ({"$ref": "file:///etc/passwd"}, ["$ref"]),
        ({"$ref": "#/nowhere"}, ["$ref", "#/nowhere"]),
        ({"$ref": "#"}, ["finite"]),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, ["finite"]),
        ({"type": "integer", "minimum": 5, "maximum": 1}, ["minimum", "#"]),
        (record(a={"type": "string", "pattern": "^aaa$", "maxLength": 2}, b=1 == 1) | {"required": ["a"]}, ["a"]),
        (record(a={"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 10}) | {"required": ["a"]}, ["a"]),
        (record(a={"pattern": "(("}), ["pattern", "#/properties/a"]),
        (record(a={"pattern": "(?=x)y"}), ["pattern", "#/properties/a"]),
        (record(a={"oneOf": [{"type": "string"}, {"minLength": 2}]}), ["oneOf", "#/properties/a"]),
        (record(a={"type": "integer", "minimum": 1e30}), ["minimum", "2^53"]),
        ({"const": 10**30}, ["const", "2^53"]),
        ({"maxItems": 10**9}, ["maxItems", "100,000"]),
        ({"minLength": -1}, ["minLength"]),
        ({"items": {"maxLength": 1e300}}, ["maxLength", "#/items"]),
        ({"items": [{"type": "integer"}]}, ["items", "prefixItems"]),
        ({"pattern": "x" * 2000}, ["pattern", "1000"]),
        ({"enum": []}, ["enum"]),
        ({"enum": ["x" * 70_000]}, ["bytes", "65,536"]),
        ({"enum": list(range(6000))}, ["5,000"]),
        ({"title": "\ud800"}, ["surrogate"]),
        (False, ["finite"]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minLength": 2,
          "definitions": {"a": {}}}, ["minLength", "$ref"]),
        ({"items": {"$id": "https://x/", "$ref": "#"}}, ["$id"]),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_by_name(schema: Any, words: list[str]) -> None:
    with pytest.raises(GrammarError) as caught:
        constraint(schema=schema)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def deep(n: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(n):
        schema = {"items": schema}
    return schema


HOSTILE = {
    "deep": deep(2000),
    "meeting patterns": {"allOf": [{"type": "string", "pattern": f"(a|b|c)*a(a|b|c){{{n}}}"} for n in range(1, 20)]},
    "nested counts": {"type": "string", "pattern": "^((a{0,100}b?){0,100}c?){0,100}$", "maxLength": 99_999},
    "bomb": {
        "$ref": "#/$defs/d24",
        "$defs": {"d0": {"type": "integer"}}
        | {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, 25)},
    },
    "product": {
        "allOf": [{"anyOf": [record(**{f"a{i}{j}": {"type": "integer"}}) for j in range(5)]} for i in range(8)]
    },
    "multiples": {"type": "integer", "multipleOf": 999_983, "minimum": 1, "maximum": 10**15},
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_hostile_schemas_end_within_bounds(schema: Any) -> None:
    """They compile or are refused; the bounds on seconds and memory are the trial's own process's."""
    begun = time.process_time()
    try:
        constraint(schema=schema).forced()
    except GrammarError as error:
        assert len(str(error)) < 600
    assert time.process_time() - begun < 60  # of this process: what could take for ever does so elsewhere


SCALARS = st.one_of(
    st.builds(
        lambda a, b: {"type": "integer", "minimum": min(a, b), "maximum": max(a, b)},
        st.integers(-300, 300),
        st.integers(-300, 300),
    ),
    st.builds(
        lambda a, m: {"type": "integer", "minimum": a, "multipleOf": m}, st.integers(-50, 50), st.integers(1, 12)
    ),
    st.builds(
        lambda a, b: {"type": "number", "exclusiveMinimum": min(a, b) / 8, "maximum": max(a, b) / 8},
        st.integers(-99, 99),
        st.integers(-99, 99),
    ),
    st.builds(
        lambda a, b: {"type": "string", "minLength": min(a, b), "maxLength": max(a, b)},
        st.integers(0, 6),
        st.integers(0, 6),
    ),
    st.sampled_from(
        [{"type": "string", "pattern": p} for p in ("^a+$", "b", "^[^x]{2}", "(ab|cd)*e", r"^\d+\.\d$", "^$", "x|^y")]
    ),
    st.builds(
        lambda values: {"enum": values},
        st.lists(
            st.one_of(st.integers(-9, 9), st.sampled_from(["a", "", None, True, [1], {"a": 1}])), min_size=1, max_size=4
        ),
    ),
    st.sampled_from(
        [
            {},
            True,
            {"type": "boolean"},
            {"type": ["null", "string"]},
            {"minimum": 3},
            {"maxLength": 2},
            {"type": "number"},
        ]
    ),
)
NAMES = st.sampled_from(["a", "b", "c", 'q"', "é", "id"])


def _object(properties: dict[str, Any], required: list[str], more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(
            _object,
            st.dictionaries(NAMES, inner, max_size=3),
            st.lists(NAMES, max_size=2, unique=True),
            st.one_of(st.booleans(), inner),
        ),
        st.builds(
            lambda i, a: {"type": "array", "items": i, "minItems": a, "maxItems": a + 2}, inner, st.integers(0, 2)
        ),
        st.builds(
            lambda p, i: {"type": "array", "prefixItems": p, "items": i}, st.lists(inner, min_size=1, max_size=2), inner
        ),
        st.builds(
            lambda w, b: {w: b}, st.sampled_from(["anyOf", "allOf", "oneOf"]), st.lists(inner, min_size=1, max_size=3)
        ),
    ),
    max_leaves=5,
)


# No line ends: Python's "$" matches before the last one, which no JSON schema means.
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-400, 400),
        st.integers(-99, 99).map(lambda n: n / 8),
        st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=4),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=4,
)


def near(schema: Any) -> st.SearchStrategy[Any]:
    """Values that are often valid, and otherwise often nearly so."""
    if not isinstance(schema, dict):
        return JSON
    made: list[st.SearchStrategy[Any]] = [
        near(child) for word in ("anyOf", "allOf", "oneOf") for child in schema.get(word, ())
    ]
    if "enum" in schema:
        made.append(st.sampled_from(schema["enum"]))
    if "pattern" in schema:
        made.append(st.from_regex(schema["pattern"], alphabet="abcdexy0123456789."))
    if "multipleOf" in schema:
        made.append(st.integers(-9, 30).map(lambda n: n * schema["multipleOf"]))
    if schema.get("type") == "object":
        known = {name: near(child) for name, child in schema["properties"].items()}
        needed = {name: known.pop(name, JSON) for name in schema["required"]}
        made.append(st.fixed_dictionaries(needed, optional=known | {"z": near(schema["additionalProperties"])}))
    if schema.get("type") == "array":
        made.append(st.lists(near(schema["items"]), max_size=4))
        prefix = st.tuples(*(near(child) for child in schema.get("prefixItems", ())))
        made.append(st.builds(lambda head, tail: [*head, *tail], prefix, st.lists(near(schema["items"]), max_size=2)))
    return st.one_of(*made, *made, JSON)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_exactly_the_valid_values_pass(data: st.DataObject) -> None:
    """The judge is the jsonschema package."""
    schema = data.draw(SCHEMAS)
    try:
        constraint(schema=schema)
    except GrammarError as error:
        note(str(error))
        assume(False)
    judge = jsonschema.Draft202012Validator(schema)
    for value in data.draw(st.lists(near(schema), min_size=3, max_size=6)):
        assert accepts(schema, value) == judge.is_valid(value), (schema, canonical(value, schema))
