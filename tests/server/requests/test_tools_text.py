"""Tools as a schema, and the object that a model writes read while it grows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.server.errors import ApiError
from edge_specquant.server.requests.bodies import ChatRequest, Message
from edge_specquant.server.requests.bounds import MAX_DEPTH, check_schema
from edge_specquant.server.requests.conversation import repaired, turns
from edge_specquant.server.requests.json_text import JsonTextDecoder, ValueScanner
from edge_specquant.server.requests.tools import ToolPlan, ToolStream, plan_tools

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


def request(**fields: Any) -> ChatRequest:
    tool = {"type": "function", "function": {"name": "weather", "description": "now", "parameters": WEATHER}}
    base = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    return ChatRequest.model_validate(base | fields)


def cut(text: str, at: list[int]) -> list[str]:
    places = sorted({min(place, len(text)) for place in at})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def fed(text: str, at: list[int]) -> tuple[str, list[str], str]:
    """(reply text, names, arguments) of an object fed in pieces."""
    stream = ToolStream()
    deltas = [delta for piece in cut(text, at) for delta in stream.feed(piece)]
    names = [delta.name for delta in deltas if delta.name is not None]
    return "".join(d.content for d in deltas), names, "".join(d.arguments for d in deltas)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=10,
)
PLACES = st.lists(st.integers(0, 300), max_size=12)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), JSON, max_size=4), PLACES, st.booleans())
def test_call_read_in_pieces_is_the_call(arguments: dict[str, Any], at: list[int], ascii_only: bool) -> None:
    body = json.dumps(arguments, ensure_ascii=ascii_only)
    written = f'{{ "name": "weather", "arguments": {body} }}'
    content, names, read = fed(written, at)
    assert (content, names) == ("", ["weather"])
    assert read == body


@settings(max_examples=40)
@given(st.text(), PLACES, st.booleans())
def test_reply_read_in_pieces_is_the_reply(reply: str, at: list[int], ascii_only: bool) -> None:
    content, names, read = fed(json.dumps({"reply": reply}, ensure_ascii=ascii_only), at)
    assert (names, read) == ([], "")
    assert content == reply


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(categories=["Cs", "L"])), PLACES)
def test_half_pairs_never_come_out(text: str, at: list[int]) -> None:
    decoder = JsonTextDecoder()
    written = json.dumps(text)[1:]
    "".join(decoder.feed(piece) for piece in cut(written, at)).encode()


@settings(max_examples=40)
@given(JSON.filter(lambda value: isinstance(value, (dict, list))), st.text(), PLACES)
def test_value_ends_where_it_ends(value: Any, rest: str, at: list[int]) -> None:
    scanner = ValueScanner()
    body = json.dumps(value)
    assert "".join(scanner.feed(piece) for piece in cut(body + rest, at)) == body


@pytest.mark.parametrize("size", [1, 2, 3])
def test_space_around_a_value_is_not_part_of_it(size: int) -> None:
    written = '{ "name" : "weather" , "arguments" :  { "city": "Bonn" }  }'
    assert fed(written, list(range(0, len(written), size)))[2] == '{ "city": "Bonn" }'


def test_what_is_neither_call_nor_reply_is_dropped() -> None:
    for text in ("", "{", '{"nam', '{"name": "weather"', "hello", '{"reply'):
        assert fed(text, []) == ("", [], "")


def test_choice_decides_what_is_allowed() -> None:
    assert plan_tools(request(tool_choice="none")) is None
    assert plan_tools(request(tools=None)) is None
    automatic, required = plan_tools(request()), plan_tools(request(tool_choice="required"))
    assert automatic is not None and automatic.may_reply
    assert required is not None and not required.may_reply
    named = plan_tools(request(tool_choice={"type": "function", "function": {"name": "weather"}}))
    assert named is not None and [function.name for function in named.functions] == ["weather"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tools": None, "tool_choice": "required"},
        {"tools": [{"type": "function", "function": {"name": "a"}}] * 2},
    ],
)
def test_impossible_choices_are_400(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        plan_tools(request(**fields))
    assert caught.value.status == 400


def plan_for(parameters: dict[str, Any], *, may_reply: bool = False) -> ToolPlan:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    plan = plan_tools(request(tools=[tool], tool_choice="auto" if may_reply else "required"))
    assert plan is not None
    return plan


def test_schema_binds_name_and_arguments() -> None:
    schema = plan_for(WEATHER).json_schema()
    assert list(schema["properties"]) == ["name", "arguments"], "in this order: the reader relies on it"
    assert schema["properties"]["name"] == {"const": "f"}
    assert schema["properties"]["arguments"] == WEATHER
    both = plan_for(WEATHER, may_reply=True).json_schema()["anyOf"]
    assert [list(branch["properties"]) for branch in both] == [["name", "arguments"], ["reply"]]


def test_definitions_of_two_functions_do_not_meet() -> None:
    parameters = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/T"}, "y": {"$ref": "#/definitions/T"}},
        "$defs": {"T": {"type": "string"}},
    }
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("a", "b")]
    plan = plan_tools(request(tools=tools))
    assert plan is not None
    schema = plan.json_schema()
    assert set(schema["$defs"]) == {"a.T", "b.T"}
    assert schema["anyOf"][1]["properties"]["arguments"]["properties"]["x"] == {"$ref": "#/$defs/b.T"}


def deep(n: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(n):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        deep(MAX_DEPTH),
        {"maxItems": 10**9},
        {"minLength": -1},
        {"items": {"maxLength": 1e300}},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"pattern": "a{1000}"},
        {"pattern": "x" * 300},
        {"enum": ["x" * 70_000]},
        {"enum": list(range(6000))},
        {"title": "\ud800"},
    ],
    ids=lambda schema: str(schema)[:30],
)
def test_schema_beyond_the_bounds_is_400(schema: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        check_schema(schema, "x")
    assert caught.value.status == 400


def conversation(*turns_: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns_]


@pytest.mark.parametrize(
    ("given_turns", "expected"),
    [
        ([("system", "s"), ("user", "u")], [("user", "s\n\nu")]),
        ([("user", "a"), ("user", "b")], [("user", "a\n\nb")]),
        ([("user", "a"), ("assistant", "x"), ("system", "s"), ("user", "b")], None),
        ([("assistant", "x"), ("user", "b")], [("user", ""), ("assistant", "x"), ("user", "b")]),
    ],
)
def test_repair_folds_the_system_text_and_joins_neighbours(given_turns: Any, expected: Any) -> None:  # D6
    mended = repaired(conversation(*given_turns))
    if expected is None:
        assert mended is not None
        roles = [turn["role"] for turn in mended]
        assert roles == ["user", "assistant", "user"]
    else:
        assert mended == conversation(*expected)


def test_nothing_to_repair_is_none() -> None:
    assert repaired(conversation(("user", "a"), ("assistant", "b"), ("user", "c"))) is None
    assert repaired(conversation(("system", "a"))) is None


def test_calls_and_results_become_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
    messages = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    assert turns([Message.model_validate(message) for message in messages]) == conversation(
        ("system", "be kind"),
        ("user", "a\nb"),
        ("assistant", '{"name": "weather", "arguments": {"city": "Bonn"}}'),
        ("user", "Result of weather: rain"),
    )
