"""Answers and streams, byte for byte as OpenAI's protocol has them, on scripted logits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from server_rig import Rig, Served, endless, eventually, saying, serving

from edge_specquant.server.setup import warm_up

HELLO = "Hello \N{GRINNING FACE} there, friend"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@pytest.fixture(scope="module")
def hello() -> Iterator[Served]:
    with serving(Rig(saying(HELLO.encode())).runtime()) as served:
        yield served


@pytest.fixture(scope="module")
def alphabet() -> Iterator[Served]:
    with serving(Rig(endless, n_ctx=256).runtime()) as served:
        yield served


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "fake:f16", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": "fake:q4", "prompt": "ab", "temperature": 0, "max_tokens": 5, **fields}


def joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


# -- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_usage", [False, True])
def test_stream_begins_with_the_role_and_ends_with_reason_then_usage_then_done(
    hello: Served, with_usage: bool
) -> None:  # D3
    extra = {"stream_options": {"include_usage": True}} if with_usage else {}
    chunks = hello.chunks(CHAT, chat(draft="q4", **extra))
    first, *middle = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    if with_usage:
        last = middle.pop()
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == len(HELLO.encode())
        assert all(chunk["usage"] is None for chunk in [first, *middle])
    else:
        assert all("usage" not in chunk for chunk in chunks)
    *contents, end = middle
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *contents])
    assert end["choices"][0]["finish_reason"] == "stop"
    assert end["choices"][0]["delta"] == {}
    assert end["x_edge_specquant"]["route"] == {"target": "f16", "draft": "q4"}
    assert joined(chunks) == HELLO
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"


def test_streamed_and_whole_agree(hello: Served) -> None:
    for fields in ({}, {"stop": ["the"]}, {"max_tokens": 3}, {"max_completion_tokens": 4, "max_tokens": 9}, {"n": 3}):
        status, whole, _ = hello.post(CHAT, chat(**fields))
        chunks = hello.chunks(CHAT, chat(**fields, stream_options={"include_usage": True}))
        assert status == 200
        for choice in whole["choices"]:
            index = choice["index"]
            assert joined(chunks, index) == choice["message"]["content"]
            reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
            assert [reason for reason in reasons if reason] == [choice["finish_reason"]]
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert chunks[-1]["usage"][count] == whole["usage"][count]


def test_max_tokens_is_length_and_max_completion_tokens_wins(hello: Served) -> None:
    _, answer, _ = hello.post(CHAT, chat(max_completion_tokens=4, max_tokens=9))
    assert answer["choices"][0]["message"]["content"] == HELLO[:4]
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


def test_no_content_event_is_empty_and_none_cuts_a_character(hello: Served) -> None:
    contents = [c["choices"][0]["delta"].get("content") for c in hello.chunks(CHAT, chat())[1:-1]]
    assert all(contents)
    assert "\N{GRINNING FACE}" in contents


@pytest.mark.parametrize("stop", ["there", ["zzz", "there"], [" th", "friend"]])
def test_stop_text_is_not_shown(hello: Served, stop: str | list[str]) -> None:
    _, answer, _ = hello.post(CHAT, chat(stop=stop))
    content = answer["choices"][0]["message"]["content"]
    assert content == HELLO.partition(stop if isinstance(stop, str) else "there" if "there" in stop else " th")[0]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_invalid_utf8_from_the_model_is_replaced_and_the_answer_is_valid_json() -> None:  # B2
    with serving(Rig(saying(b"a\xc3\x28b\xffc")).runtime()) as served:
        _, whole, _ = served.post(CHAT, chat())
        chunks = served.chunks(CHAT, chat())
        assert whole["choices"][0]["message"]["content"] == "a\ufffd(b\ufffdc" == joined(chunks)
        _, continued, _ = served.post(TEXT, text(prompt="Assistant:", max_tokens=6))
        assert continued["choices"][0]["text"] == "a\ufffd(b\ufffdc"


def test_line_ends_from_the_model_never_break_an_event() -> None:
    said = "one\r\ntwo\n\ndata: [DONE]\n\n\u2028three\x00\x1b[31m"
    with serving(Rig(saying(said.encode())).runtime()) as served:
        assert joined(served.chunks(CHAT, chat())) == said


# -- completions ------------------------------------------------------------------------------------------------------


def test_prompt_as_text_list_and_ids_give_the_same(alphabet: Served) -> None:
    answers = [alphabet.post(TEXT, text(prompt=prompt))[1] for prompt in ("ab", ["ab"], [97, 98], [[97, 98]])]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert {answer["usage"]["prompt_tokens"] for answer in answers} == {2}
    assert answers[0]["choices"][0]["finish_reason"] == "length"
    assert answers[0]["object"] == "text_completion"


def test_several_prompts_and_choices_are_numbered_prompt_by_prompt(alphabet: Served) -> None:
    fields = text(prompt=["a", "bb", "ccc"], n=2, max_tokens=3)
    _, answer, _ = alphabet.post(TEXT, fields)
    texts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert texts[0] == texts[1] != texts[2] == texts[3] != texts[4] == texts[5]
    assert answer["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 18,
        "total_tokens": 24,
        "prompt_tokens_details": answer["usage"]["prompt_tokens_details"],
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    chunks = alphabet.chunks(TEXT, fields)
    for index, whole in enumerate(texts):
        pieces = [c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert "".join(pieces) == whole


def test_echo_puts_the_prompt_in_front(alphabet: Served) -> None:
    plain = alphabet.post(TEXT, text())[1]["choices"][0]["text"]
    assert alphabet.post(TEXT, text(echo=True))[1]["choices"][0]["text"] == "ab" + plain
    assert alphabet.post(TEXT, text(echo=True, max_tokens=0))[1]["choices"][0]["text"] == "ab"
    pieces = [choice["text"] for chunk in alphabet.chunks(TEXT, text(echo=True)) for choice in chunk["choices"]]
    assert "".join(pieces) == "ab" + plain


def test_completion_without_max_tokens_takes_openais_sixteen(alphabet: Served) -> None:
    _, answer, _ = alphabet.post(TEXT, {"model": "fake:q4", "prompt": "x"})
    assert answer["usage"]["completion_tokens"] == 16


def test_context_end_is_length(alphabet: Served) -> None:
    _, answer, _ = alphabet.post(TEXT, text(prompt="p" * 250, max_tokens=100))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 256


# -- models, and other routes -----------------------------------------------------------------------------------------


def test_every_sibling_is_a_model_and_auto_routes(hello: Served) -> None:
    _, listed, _ = hello.get("/v1/models")
    ids = [model["id"] for model in listed["data"]]
    assert ids == ["fake:q4", "fake:q8", "fake:f16", "fake:auto"]
    for name in ids:
        status, model, _ = hello.get(f"/v1/models/{name}")
        assert (status, model["id"], model["object"]) == (200, name, "model")
        _, answer, _ = hello.post(CHAT, chat(model=name))
        target = answer["x_edge_specquant"]["route"]["target"]
        assert target == (name.partition(":")[2] if not name.endswith("auto") else "f16")


def test_request_chooses_siblings_by_extra_body(hello: Served) -> None:
    _, answer, _ = hello.post(CHAT, chat(model="fake:auto", target="q8", draft="none"))
    figures = answer["x_edge_specquant"]
    assert figures["route"] == {"target": "q8", "draft": "none"}
    assert figures["acceptance_rate"] is None, "nothing was drafted: unknown, not zero"
    _, answer, _ = hello.post(CHAT, chat(model="fake:f16", draft="q4", n_draft=4))
    assert answer["x_edge_specquant"]["acceptance_rate"] == 1.0


def test_auto_routes_by_the_servers_policy_or_the_requests() -> None:
    with serving(Rig(saying(b"fine")).runtime(), policy="fast") as served:
        route = served.post(CHAT, chat(model="fake:auto"))[1]["x_edge_specquant"]["route"]
        assert (route["policy"], route["target"]) == ("fast", "q4"), "small talk is for the smallest"
        assert route["reasons"]
        last = served.chunks(CHAT, chat(model="fake:auto", policy="quality"))[-1]
        assert last["x_edge_specquant"]["route"]["policy"] == "quality"
        for fields in ({"model": "fake:auto", "target": "q8"}, {"model": "fake:q8"}):
            route = served.post(CHAT, chat(**fields))[1]["x_edge_specquant"]["route"]
            assert route["target"] == "q8"
            assert "policy" not in route
        for name in ("nonsense", "../policy", "/etc/passwd", "fast.toml"):
            status, answer, _ = served.post(CHAT, chat(policy=name))
            assert (status, answer["error"]["param"]) == (400, "policy")


@pytest.mark.parametrize("name", ["gpt-4o", "fake", "fake:q5", "FAKE:Q4", "../../etc/passwd", "fake:q4\x00", "\x1b[2J"])
def test_unknown_model_is_404_never_a_substitute(hello: Served, name: str) -> None:
    status, answer, _ = hello.post(CHAT, chat(model=name))
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert hello.post(TEXT, text(model=name))[0] == 404


def test_embeddings_are_a_clear_501(hello: Served) -> None:
    status, answer, headers = hello.post("/v1/embeddings", {"model": "fake:q4", "input": "x"})
    assert (status, answer["error"]["code"]) == (501, "not_implemented")
    assert headers["x-should-retry"] == "false"


def test_health_and_metrics(hello: Served) -> None:
    assert hello.get("/health")[:2] == (200, {"status": "ok"})
    hello.post(CHAT, chat())
    assert eventually(lambda: not hello.services.engine.n_running)
    _, raw, _ = hello.get("/metrics")
    values = dict(line.rsplit(" ", 1) for line in raw.decode().splitlines() if not line.startswith("#"))
    assert float(values["spec_decode_num_accepted_tokens_total"]) > 0
    assert float(values["spec_decode_num_draft_tokens_total"]) >= float(values["spec_decode_num_accepted_tokens_total"])
    assert float(values["edge_specquant_generation_tokens_total"]) > 0
    assert float(values["edge_specquant_requests_running"]) == 0
    assert float(values['edge_specquant_requests_total{finished_reason="stop"}']) > 0


# -- refusals ---------------------------------------------------------------------------------------------------------

IMAGE = {"type": "image_url", "image_url": {"url": "http://x/"}}
USER = {"role": "user", "content": "hi"}
BAD_CHATS: list[tuple[dict[str, Any], str | None]] = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"n": 17}, "n"),
    ({"n": True}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"seed": 1 << 64}, "seed"),
    ({"stop": [""]}, None),
    ({"stop": ["x"] * 17}, None),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, None),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"n_draft": 1000}, "n_draft"),
    ({"target": "q2", "model": "fake:auto"}, "target"),
    ({"target": "q4", "model": "fake:q8"}, "target"),
    ({"draft": "q2"}, None),
    ({"temprature": 1}, "temprature"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
    ({"messages": [USER, {"role": "user", "content": [IMAGE]}]}, "messages.1.content.0.type"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, None),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [{"type": "function", "function": {"name": "bad name"}}]}, None),
    ({"messages": [{"role": "user", "content": "x" * 5000}]}, None),
    ({"model": None}, "model"),
    ({"stream": "yes"}, "stream"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_CHATS, ids=lambda value: str(value)[:50])
@pytest.mark.parametrize("stream", [False, True])
def test_bad_value_is_400_with_openais_error_object(
    hello: Served, fields: dict[str, Any], param: str | None, stream: bool
) -> None:
    status, answer, _ = hello.post(CHAT, {**chat(stream=stream), **fields})
    assert status == 400, answer
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"]
    if param is not None:
        assert answer["error"]["param"] == param


BAD_TEXTS: list[dict[str, Any]] = [
    {"prompt": ""},
    {"prompt": []},
    {"prompt": [[]]},
    {"prompt": [1, "a"]},
    {"prompt": [-1]},
    {"prompt": [100_000]},
    {"prompt": "p" * 300},
    {"suffix": "x"},
    {"best_of": 3},
    {"logprobs": 50},
]


@pytest.mark.parametrize("fields", BAD_TEXTS, ids=lambda value: str(value)[:50])
def test_bad_completion_is_400(alphabet: Served, fields: dict[str, Any]) -> None:
    status, answer, _ = alphabet.post(TEXT, text(**fields))
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error"), answer


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"[" * 200_000, b'{"a":' * 50_000, b'{"model": NaN}', b"1e999"],
    ids=lambda body: repr(body[:12]),
)
def test_body_that_is_no_object_is_400(hello: Served, body: bytes) -> None:
    status, answer, _ = hello.post(CHAT, body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_prompt_longer_than_the_context_has_openais_code(alphabet: Served) -> None:
    _, answer, _ = alphabet.post(TEXT, text(prompt="p" * 300))
    assert answer["error"]["code"] == "context_length_exceeded"


def test_text_that_cannot_fit_is_not_even_tokenized() -> None:
    runtime = Rig(endless, n_ctx=64).runtime()
    warm_up(runtime)
    with serving(runtime) as served:
        for path, body in (
            (CHAT, chat(messages=[{"role": "user", "content": "x" * 3000}])),
            (TEXT, text(prompt="x" * 3000)),
        ):
            status, answer, _ = served.post(path, body)
            assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
            assert "3000 bytes" in answer["error"]["message"]


def test_nan_is_400(hello: Served) -> None:
    body = json.dumps(chat(temperature=float("nan"))).encode()
    assert b"NaN" in body
    assert hello.post(CHAT, body)[0] == 400


def test_fields_of_openais_clients_without_meaning_here_are_taken(hello: Served) -> None:
    extras = {
        "user": "someone",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "reasoning_effort": "low",
        "modalities": ["text"],
        "stop": None,
        "tools": None,
        "stream_options": None,
        "response_format": {"type": "text"},
    }
    status, answer, _ = hello.post(CHAT, chat(**extras))
    assert status == 200, answer


def test_no_route_and_wrong_method_answer_in_json(hello: Served) -> None:
    status, answer, _ = hello.get("/v1/nothing")
    assert (status, answer["error"]["type"]) == (404, "invalid_request_error")
    assert hello.get(CHAT)[0] == 405
    assert hello.request("PUT", CHAT, b"{}", {"Content-Type": "application/json"})[0] == 405


# -- templates that refuse --------------------------------------------------------------------------------------------

STRICT = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ m.role | capitalize }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
BROKEN = "{% for m in messages %}{{ raise_exception('never') }}{% endfor %}"


@pytest.mark.parametrize("stream", [False, True])
def test_conversation_is_repaired_for_a_strict_template(stream: bool) -> None:  # D6
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a turn that was cancelled"},
        {"role": "user", "content": "hi"},
    ]
    rig = Rig(saying(b"fine"), chat_template=STRICT)
    with serving(rig.runtime()) as served:
        if stream:
            assert joined(served.chunks(CHAT, chat(messages=messages))) == "fine"
        else:
            assert served.post(CHAT, chat(messages=messages))[1]["choices"][0]["message"]["content"] == "fine"
        prompt = bytes(token for token in rig.contexts[0].decoded if token < 256).decode()
        assert prompt.startswith("User:be kind\n\na turn that was cancelled\n\nhi\nAssistant:")


@pytest.mark.parametrize("template", [BROKEN, "{% nonsense %}", "{{ x.y.z }}"])
def test_template_that_cannot_be_used_is_400(template: str) -> None:  # B9, D6
    with serving(Rig(saying(b"fine"), chat_template=template).runtime()) as served:
        status, answer, _ = served.post(CHAT, chat(stream=True))
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert served.post(TEXT, text(max_tokens=1))[0] == 200
