"""The forms of a reply that clients ask for, by every name they have for them, over a model that writes a, b, c ..."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from server_rig import Rig, Served, endless, serving

from edge_specquant.native.fake import FakeModel

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RECORD = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "n": {"enum": [1, 22]}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
OBJECT = {"type": "object", "maxProperties": 0}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    runtime = Rig(endless, n_ctx=2048, n_parallel=2).runtime()
    with serving(runtime, vocabulary=lambda: FakeModel(endless)) as made:
        yield made


def ask(**fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "hi"}
    return {"model": "fake:f16", "messages": [message], "temperature": 0, "max_tokens": 200, **fields}


def reply(served: Served, **fields: Any) -> str:
    status, answer, _ = served.post(CHAT, ask(**fields))
    assert status == 200, answer
    assert answer["choices"][0]["finish_reason"] == "stop", answer
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "strict": True, "schema": RECORD}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": RECORD}}},
        {"response_format": {"type": "json_object", "schema": RECORD}},
        {"response_format": {"type": "json_schema", "schema": RECORD}},
        {"json_schema": RECORD},
        {"guided_json": RECORD},
        {"guided_json": json.dumps(RECORD)},
        {"structured_outputs": {"json": RECORD}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_schema_by_any_name_binds_the_reply(served: Served, fields: dict[str, Any]) -> None:
    assert jsonschema.Draft202012Validator(RECORD).is_valid(json.loads(reply(served, **fields)))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"regex": "[xyz]{2}[0-9]"}, "xx0"),
        ({"guided_regex": "^no$"}, "no"),
        ({"structured_outputs": {"regex": "(yes|no)!"}}, None),
        ({"lark": 'start: "<" /[q-s]{2}/ ">"'}, "<qq>"),
        ({"grammar": '%llguidance {}\nstart: "ok"'}, "ok"),
        ({"guided_choice": ["left", 'r"t']}, None),
        ({"guided_grammar": 'start: "ok"'}, "ok"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_other_forms_bind_it_too(served: Served, fields: dict[str, Any], expected: str | None) -> None:
    text = reply(served, **fields)
    assert text in (("yes!", "no!", "left", 'r"t') if expected is None else (text,))
    assert expected is None or (len(text) == len(expected) and set(text) <= set("xyz0123456789no<>qrsok"))


def test_completions_take_forms_and_a_json_object_is_one(served: Served) -> None:
    body = {"model": "fake:f16", "prompt": "x", "temperature": 0, "max_tokens": 50, "regex": "[0-9]{4}"}
    assert served.post(TEXT, body)[1]["choices"][0]["text"].isdecimal()
    assert served.post(CHAT, ask(response_format={"type": "json_object"}))[1]["choices"][0]["message"][
        "content"
    ].startswith("{")


@pytest.mark.parametrize("draft", ["none", "lookup", "q4"])
def test_streams_choices_seeds_and_logprobs_go_on_working(served: Served, draft: str) -> None:
    """Four sampled choices, two at a time: the same streamed and whole, with whoever drafts; each valid."""
    fields = ask(json_schema=RECORD, n=4, seed=3, temperature=1, draft=draft, logprobs=True, top_logprobs=2)
    _, answer, _ = served.post(CHAT, fields)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert all(jsonschema.Draft202012Validator(RECORD).is_valid(json.loads(text)) for text in texts)
    for choice in answer["choices"]:
        assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == choice["message"]["content"]
    chunks = served.chunks(CHAT, fields)
    for i, text in enumerate(texts):
        pieces = [c for chunk in chunks for c in chunk["choices"] if c["index"] == i]
        assert "".join(piece["delta"].get("content") or "" for piece in pieces) == text
    assert texts == [c["message"]["content"] for c in served.post(CHAT, fields | {"draft": "none"})[1]["choices"]]


NO = {"type": "object", "properties": {"when": {"not": {}}}}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"json_schema": NO}, "json_schema", "'not' at #/properties/when"),
        ({"response_format": {"type": "json_object", "schema": NO}}, "response_format.schema", "'not'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": NO}}},
            "response_format.json_schema.schema",
            "'not'",
        ),
        ({"json_schema": {"minimum": 5, "maximum": 1, "type": "integer"}}, None, "greater"),
        ({"json_schema": {"pattern": "(?=x)"}}, None, "'pattern' at #"),
        ({"regex": "("}, None, "regular expression"),
        ({"lark": "start: nowhere"}, None, "Lark"),
        ({"guided_json": "{"}, "guided_json", "not JSON"),
        ({"json_schema": {}, "regex": "a"}, "regex", "together"),
        ({"grammar": "root ::= x", "response_format": {"type": "json_object"}}, "grammar", "together"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "regex": "a"}, "regex", "tools"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_is_400_that_names_it(
    served: Served, fields: dict[str, Any], param: str | None, words: str, stream: bool
) -> None:
    status, answer, _ = served.post(CHAT, ask(stream=stream, **fields))
    assert status == 400, answer
    assert answer["error"]["param"] == param
    assert words in answer["error"]["message"], answer
    for name in ("AssertionError", "KeyError", "AttributeError", "Traceback"):
        assert name not in answer["error"]["message"]
