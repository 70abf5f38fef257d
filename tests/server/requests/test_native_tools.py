"""Tools as the model's own template has them: prose and calls parted while they grow, and a real engine bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_rig import Served, serving
from structured_rig import constraint, lets_through

from edge_specquant.native.selftest.tiny import write_tiny_llama
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.server.requests.bodies import ChatRequest, Message
from edge_specquant.server.requests.native_tools import CallStream, is_spoken_by, lark, native_turns
from edge_specquant.server.requests.tools import ToolPlan, plan_tools

CHAT = "/v1/chat/completions"
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %} <tool_call></tool_call>\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }} {{ call.function.arguments | tojson }}"
    "</tool_call>{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
SWITCH = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "room": {"enum": ["hall", "attic"]}},
    "required": ["on", "room"],
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SWITCH}} for name in ("light", "heat")]


def plan(choice: Any = "auto") -> ToolPlan:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": choice}
    made = plan_tools(ChatRequest.model_validate(body))
    assert made is not None
    return made


def call(name: str, **arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def read(text: str, at: list[int]) -> tuple[str, list[tuple[str, str]]]:
    """(prose, calls) of a reply fed in pieces."""
    stream, prose, calls = CallStream(), "", []
    places = sorted({min(place, len(text)) for place in at})
    for a, b in zip([0, *places], [*places, len(text)], strict=True):
        for delta in stream.feed(text[a:b]):
            prose += delta.content
            if delta.name is not None:
                calls.append((delta.name, ""))
            if delta.arguments:
                assert delta.index == len(calls) - 1
                calls[-1] = (calls[-1][0], calls[-1][1] + delta.arguments)
    return prose, calls


@given(st.text(alphabet="ab <t>ol_c"), st.lists(st.integers(0, 300), max_size=20), st.integers(0, 3))
@settings(max_examples=60)
def test_prose_and_calls_are_parted_wherever_the_text_is_cut(prose: str, at: list[int], n_calls: int) -> None:
    prose = prose.replace("<tool_call>", "") + "."
    calls = [call("light", on=bool(i % 2), room="hall </tool_call>") for i in range(n_calls)]
    found, parsed = read(prose + "\n".join(calls), at)
    assert found == prose
    assert [(name, json.loads(arguments)) for name, arguments in parsed] == [
        ("light", {"on": bool(i % 2), "room": "hall </tool_call>"}) for i in range(n_calls)
    ]


def test_templates_say_whether_they_know_tools() -> None:
    assert is_spoken_by(TEMPLATE)
    assert not is_spoken_by(None)
    assert not is_spoken_by("{{ messages }}")


def allowed(made: ToolPlan, text: str, *, parallel: bool = True) -> bool:
    return lets_through(constraint(lark=lark(made, parallel=parallel), lark_schemas=made.schemas()), text)


@pytest.mark.parametrize(
    ("text", "automatic", "required"),
    [
        ("plain words", True, False),
        ("a < b, <b>bold</b>, <table>, <<too>", True, False),
        (call("light", on=True, room="hall"), True, True),
        ("I look.\n" + call("heat", on=False, room="attic"), True, False),
        ("\n".join([call("light", on=True, room="hall")] * 2), True, True),
        (call("other", on=True, room="hall"), False, False),
        (call("light", on=True), False, False),
        (call("light", on=True, room="cellar"), False, False),
        ("<tool_call> nonsense", False, False),
    ],
)
def test_grammar_binds_calls_and_leaves_prose_alone(text: str, automatic: bool, required: bool) -> None:
    assert allowed(plan(), text) is automatic
    assert allowed(plan("required"), text) is required


def test_one_call_where_calls_may_not_be_parallel() -> None:
    two = "\n".join([call("light", on=True, room="hall")] * 2)
    assert not allowed(plan(), two, parallel=False)
    assert allowed(plan(), call("light", on=True, room="hall"), parallel=False)


def test_calls_and_results_keep_their_fields() -> None:
    messages = [
        {"role": "developer", "content": "be kind"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "light", "arguments": '{"on": true}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    system, assistant, tool = native_turns([Message.model_validate(message) for message in messages])
    assert system == {"role": "system", "content": "be kind"}
    assert assistant["tool_calls"][0]["function"] == {"name": "light", "arguments": {"on": True}}
    assert tool == {"role": "tool", "content": "done", "tool_call_id": "1", "name": "light"}


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = write_tiny_llama(tmp_path_factory.mktemp("taught") / "taught.gguf", chat_template=TEMPLATE)
    with serving(Runtime.local(path, EngineOptions(n_ctx=512))) as served:
        yield served


def ask(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Light in the hall, please."}]
    return {"model": "taught:f16", "messages": messages, "tools": TOOLS, "max_tokens": 100, "seed": 5, **fields}


def test_random_weights_call_a_function_of_ours_with_arguments_of_its_schema(taught: Served) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "heat"}}):
        fields = ask(tool_choice=choice, parallel_tool_calls=False)
        _, answer, _ = taught.post(CHAT, fields)
        (choice_,) = answer["choices"]
        assert (choice_["finish_reason"], choice_["message"]["content"]) == ("tool_calls", None), answer
        (made,) = choice_["message"]["tool_calls"]
        assert made["function"]["name"] in (("light", "heat") if choice == "required" else ("heat",))
        arguments = json.loads(made["function"]["arguments"])
        assert isinstance(arguments["on"], bool)
        assert arguments["room"] in ("hall", "attic")
        chunks = taught.chunks(CHAT, fields)
        pieces = [c for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", [])]
        assert "".join(piece["function"]["arguments"] for piece in pieces) == made["function"]["arguments"]
        assert [piece["function"]["name"] for piece in pieces if "name" in piece["function"]] == [
            made["function"]["name"]
        ]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_template_describes_the_tools(taught: Served) -> None:
    with_tools = taught.post(CHAT, ask(max_tokens=1))[1]["usage"]["prompt_tokens"]
    without = taught.post(CHAT, ask(max_tokens=1, tool_choice="none"))[1]["usage"]["prompt_tokens"]
    assert with_tools > without + 50
