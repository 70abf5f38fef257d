"""Thinking through the server: thoughts in a field of their own, whole and streamed, counted, limited, sent back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server_rig import Rig, Served, endless, serving
from thinking_rig import saying, thinking_vocab

from edge_specquant.native.fake import FakeModel

PATH = "/v1/chat/completions"
REPLY = "<think>\none. two.\n</think>\n\nThree. Four."
# In the manner of Qwen3: the thoughts of earlier turns are dropped, and a switch writes an empty one.
TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def body(**more: Any) -> dict[str, Any]:
    return {"model": "fake:f16", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **more}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(saying(REPLY, "Five."), chat_template=TEMPLATE, vocab=thinking_vocab())


@pytest.fixture(scope="module")
def served(rig: Rig) -> Iterator[Served]:
    with serving(rig.runtime(), vocabulary=lambda: FakeModel(endless, vocab=thinking_vocab())) as up:
        yield up


def test_the_thought_is_apart_whole_and_streamed(served: Served) -> None:
    status, answer, _ = served.post(PATH, body())
    assert status == 200
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert (message["content"], message["reasoning_content"]) == ("Three. Four.", "one. two.")
    n_thought = usage["completion_tokens_details"]["reasoning_tokens"]
    assert n_thought == usage["completion_tokens"] - len("Three. Four.")
    chunks = served.chunks(PATH, body(stream_options={"include_usage": True}))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Three. Four."
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "one. two."
    assert not any(delta.get("content") and delta.get("reasoning_content") for delta in deltas)
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == n_thought


def test_stops_and_logprobs_are_the_answers(served: Served) -> None:
    answer = served.post(PATH, body(stop=".", logprobs=True))[1]["choices"][0]
    assert (answer["message"]["content"], answer["message"]["reasoning_content"]) == ("Three", "one. two.")
    assert "".join(entry["token"] for entry in answer["logprobs"]["content"]) == "Three"


@pytest.mark.parametrize("off", [{"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}])
def test_it_can_be_switched_off(served: Served, off: dict[str, Any]) -> None:
    """The template's switch closes the thought in the prompt, so all that comes is the answer."""
    answer = served.post(PATH, body(max_tokens=5, **off))[1]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    assert "reasoning_content" not in answer["choices"][0]["message"]


@pytest.mark.parametrize("n", [0, 4])
def test_a_budget_closes_the_thought(served: Served, n: int) -> None:
    answer = served.post(PATH, body(thinking_budget_tokens=n, max_tokens=20))[1]["choices"][0]["message"]
    assert answer.get("reasoning_content", "") == "one"[: max(0, n - 1)]
    assert answer["content"]


def test_a_level_that_the_template_does_not_know_is_told(served: Served) -> None:
    answer = served.post(PATH, body(reasoning_effort="high"))[1]
    assert "levels" in answer["x_edge_specquant"]["notices"][0]


def test_thoughts_are_taken_back_and_the_template_decides(rig: Rig, served: Served) -> None:
    """D7: the second turn reuses every cell up to the thought that the template drops, and no more is decoded anew than
    the answer and what is new."""
    first = served.post(PATH, body())[1]
    history = [*body()["messages"], first["choices"][0]["message"], {"role": "user", "content": "and?"}]
    second = served.post(PATH, body(messages=history))[1]
    assert second["choices"][0]["message"]["content"] == "Five."
    usage = second["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == first["usage"]["prompt_tokens"]
    cells = max((context.cells.get(0, []) for context in rig.contexts), key=len)
    prompt = bytes(token for token in cells[: usage["prompt_tokens"]] if token < 256)
    assert b"one" not in prompt, "this template drops the thoughts of earlier turns"


def test_a_thought_that_a_template_keeps_is_cached_whole() -> None:
    keeping = (
        "{% for m in messages %}{{ m.role | capitalize }}:"
        "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}\n"
        "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
    )
    rig = Rig(saying(REPLY, "Five."), chat_template=keeping, vocab=thinking_vocab())
    with serving(rig.runtime()) as served:
        first = served.post(PATH, body())[1]
        history = [*body()["messages"], first["choices"][0]["message"], {"role": "user", "content": "and?"}]
        usage = served.post(PATH, body(messages=history))[1]["usage"]
        n_held = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= n_held - 1


def test_a_model_that_does_not_think_says_so() -> None:
    with serving(Rig(saying("Yes.")).runtime()) as served:
        answer = served.post(PATH, body(thinking_budget_tokens=5))[1]
        assert "does not think" in answer["x_edge_specquant"]["notices"][0]
        assert answer["choices"][0]["message"]["content"] == "Yes."
        assert served.post(PATH, body(reasoning_effort="none"))[1]["x_edge_specquant"]["notices"] == []
