"""What callers give the chat template: variables, the beginning of a reply, nothing at all (cases J2, J3, J7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server_rig import Rig, Served, echoing, serving

CHAT = "/v1/chat/completions"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is false %}#{% endif %}{{ mood }}{% endif %}"
)
ASK = {"model": "fake:f16", "max_tokens": 1, "draft": "none"}
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(echoing, chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def served(rig: Rig) -> Iterator[Served]:
    with serving(rig.runtime()) as up:
        yield up


def prompt_of(rig: Rig, served: Served, **fields: Any) -> bytes:
    """The prompt as the model's cache held it; control tokens as their markers."""
    messages = fields.pop("messages", [USER])
    status, answer, _ = served.post(CHAT, {**ASK, "messages": messages, **fields})
    assert status == 200, answer
    n = answer["usage"]["prompt_tokens"]
    (cells,) = [context.cells[0] for context in rig.contexts]
    return b"".join(rig.models[0].vocab.piece(token, special=True) for token in cells[:n])


def test_template_arguments_reach_the_template(rig: Rig, served: Served) -> None:
    assert prompt_of(rig, served) == b"<user>hi<eos><assistant>"
    kwargs = {"enable_thinking": False, "mood": "<eos>gay"}
    ids = prompt_of(rig, served, chat_template_kwargs=kwargs)
    assert ids == b"<user>hi<eos><assistant>#<eos>gay"
    assert [c for c in rig.contexts[0].cells[0] if c >= 256] == [256]  # the caller's <eos> is text
    assert prompt_of(rig, served, add_generation_prompt=False) == b"<user>hi<eos>"


def test_a_trailing_assistant_message_is_continued(rig: Rig, served: Served) -> None:
    begun = [USER, {"role": "assistant", "content": "It is"}]
    assert prompt_of(rig, served, messages=begun) == b"<user>hi<eos><assistant>It is"
    new_turn = prompt_of(rig, served, messages=begun, continue_final_message=False)
    assert new_turn == b"<user>hi<eos><assistant>It is<eos><assistant>"
    empty = [USER, {"role": "assistant", "content": ""}]
    assert prompt_of(rig, served, messages=empty) == b"<user>hi<eos><assistant>"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": ""}]}),
        (CHAT, {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": []}]}),
        (CHAT, {"messages": [USER], "chat_template_kwargs": {"messages": []}}),
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": ["x", ""]}),
    ],
)
def test_an_empty_prompt_is_refused(served: Served, path: str, body: dict[str, Any]) -> None:
    status, answer, _ = served.post(path, {**ASK, **body})
    assert status == 400, answer
    assert answer["error"]["type"] == "invalid_request_error"
