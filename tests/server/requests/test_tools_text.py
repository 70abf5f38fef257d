"""Tools as a schema, and the object that a model writes read while it grows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structured_rig import constraint, lets_through

from edge_specquant.server.errors import ApiError
from edge_specquant.server.requests.bodies import ChatRequest, Message
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


def allowed(plan: ToolPlan, text: str) -> bool:
    return lets_through(constraint(lark=plan.lark(), lark_schemas=plan.schemas()), text)


def call(arguments: Any, name: str = "f") -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_grammar_binds_name_and_arguments() -> None:
    plan = plan_for(WEATHER)
    assert allowed(plan, call({"city": "Bonn", "days": 2}))
    for text in (call({"days": 2}), call({"city": 1}), call({"city": "Bonn"}, "g"), '{"reply": "x"}', "x"):
        assert not allowed(plan, text)
    both = plan_for(WEATHER, may_reply=True)
    assert allowed(both, '{"reply": "no \\"tool\\""}') and allowed(both, call({"city": "Bonn"}))


@pytest.mark.parametrize(
    ("parameters", "valid", "invalid"),
    [
        (None, {}, {"a": 1}),
        ({}, {"a": [1]}, 1),
        ({"type": "object"}, {"a": 1}, "x"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, {"c": 1}),
        ({"type": "integer", "minimum": 1} | {"type": ["object", "null"]}, {}, None),
        ({"properties": {"n": {"type": "integer", "maximum": 5}}, "required": ["n"]}, {"n": 5}, {"n": 100}),
    ],
)
def test_arguments_are_an_object_of_the_tools_own_schema(parameters: Any, valid: Any, invalid: Any) -> None:
    plan = plan_for(parameters)
    assert allowed(plan, call(valid))
    assert not allowed(plan, call(invalid))


def test_definitions_of_two_functions_do_not_meet() -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {"x": {"$ref": "#/$defs/T"}, "again": {"$ref": "#"}},
                    "$defs": {"T": {"const": name}},
                },
            },
        }
        for name in ("a", "b")
    ]
    plan = plan_tools(request(tools=tools))
    assert plan is not None
    assert allowed(plan, call({"x": "b", "again": {"x": "b"}}, "b"))
    assert not allowed(plan, call({"x": "a"}, "b"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"properties": {"when": {"pattern": "x", "uniqueItems": True}}}, "'uniqueItems' at #/properties/when"),
        ({"properties": {"n": {"maxLength": 10**6}}}, "'maxLength' at #/properties/n is 1000000"),
        ({"type": "string"}, "'type'"),
        ({"$ref": "https://example.com/schema.json"}, "'$ref'"),
    ],
)
def test_a_tool_that_cannot_be_enforced_is_named(parameters: Any, words: str) -> None:
    good = {"type": "function", "function": {"name": "good", "parameters": WEATHER}}
    bad = {"type": "function", "function": {"name": "bad", "parameters": parameters}}
    with pytest.raises(ApiError) as caught:
        plan_tools(request(tools=[good, bad]))
    assert (caught.value.status, caught.value.param) == (400, "tools.1.function.parameters")
    assert "tool 'bad'" in caught.value.message and words in caught.value.message, caught.value.message
    assert plan_tools(request(tools=[good, bad], tool_choice="none")) is None


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
