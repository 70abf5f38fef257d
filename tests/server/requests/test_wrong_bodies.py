"""What is wrong with a body is told by name: the field, its own problem, and what the parser could not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from server_rig import Rig, Served, endless, serving

CHAT = "/v1/chat/completions"
GOOD = {"model": "fake:q4", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(Rig(endless).runtime()) as served:
        yield served


def sent(served: Served, body: bytes) -> dict[str, Any]:
    status, answer, _ = served.post(CHAT, body)
    error: dict[str, Any] = answer["error"]
    assert status == 400
    return error


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"stop": ["x"] * 17}, "stop", "at most 16 items"),
        ({"stop": ["a", 5]}, "stop.1", "valid string"),
        ({"stop": ""}, "stop", "at least 1 character"),
        ({"stop": 5}, "stop", "valid"),
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        ({"max_tokens": 10**40}, "max_tokens", "less than or equal to"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", "must provide"),
        ({"logit_bias": {"999999": 1}}, None, "logit_bias names token 999999; the vocabulary has"),
        ({"logit_bias": {"999999": 1}, "stream": True}, None, "logit_bias names token 999999"),
    ],
)
def test_a_wrong_field(served: Served, fields: dict[str, Any], param: str | None, words: str) -> None:
    error = sent(served, json.dumps({**GOOD, **fields}).encode())
    assert words in error["message"] and (error["param"] or "").startswith(param or "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (json.dumps(GOOD).encode().replace(b"hi", b"h\xff"), "not UTF-8 (byte"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"model": "fake:q4", "metadata": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested too deep"),
        (b'{"model": "fake:q4", "seed": ' + b"9" * 5000 + b"}", "more than 4300 digits"),
        (b'{"model": ', "not valid JSON"),
    ],
)
def test_a_body_that_is_no_json(served: Served, body: bytes, words: str) -> None:
    error = sent(served, body)
    assert words in error["message"] and error["code"] == "invalid_json"


def test_random_seeds_and_their_neighbours(served: Served) -> None:
    for seed in (-1, -2, 0xFFFFFFFF - 1):
        body = {**GOOD, "seed": seed, "n": 3, "temperature": 1}
        assert len(served.post(CHAT, body)[1]["choices"]) == 3
