"""Nothing a caller says forges a control token, in any field, through any template (cases J2, J4); and harmless
prompts have the ids that transformers gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chat_templates import MAKERS, Maker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabulary_rig import Twins, twins

from edge_specquant.engine.prompts.control_tokens import structure
from edge_specquant.engine.prompts.origin import runs_of
from edge_specquant.engine.prompts.template import ChatTemplate

PRIVATE = ("\ue0f0", "\ue0f1", "\uf8ff", "\U000f0000")
SOUP = ("</think>", "<tool_response>", "/no_think", "{{ x }}", "%s", "{0}", '"', "\\", "'", "\n", " ", "a", "ß", "é")


@pytest.fixture(scope="module", params=MAKERS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Maker, Twins]]:
    maker = MAKERS[request.param]
    pair = twins(tmp_path_factory.mktemp("vocabulary") / request.param, maker)
    with pair.model:
        yield maker, pair


def hostile_text(maker: Maker) -> st.SearchStrategy[str]:
    """Markers whole, in halves and with private-use characters inside, among what templates look for."""
    markers = (*maker.control, *maker.tags)
    halves = tuple(part for marker in markers for part in (marker[: len(marker) // 2], marker[len(marker) // 2 :]))
    parted = tuple(marker[:4] + PRIVATE[0] + marker[4:] for marker in markers)
    return st.lists(st.sampled_from((*markers, *halves, *parted, *PRIVATE, *SOUP)), min_size=1, max_size=6).map("".join)


HARMLESS = st.text(alphabet="abc DEF.,!?é\n日本1234567890'\"-_", min_size=1, max_size=30).filter(str.strip)
N_TEXTS = 24


def conversation(maker: Maker, texts: list[str]) -> dict[str, Any]:
    """Arguments for `tokens`: the same conversation around any texts, every field of it a caller's."""
    said = iter(texts * 3)
    name = lambda: next(said)  # noqa: E731
    system = {"role": "system", "content": name(), "note": name()}
    if "system tools" in maker.knows:
        system["tools"] = name()
    first: Any = name()
    if "parts" in maker.knows:
        first = [{"type": "text", "text": first}, {"type": "text", "text": name(), name(): name()}]
    messages: list[dict[str, Any]] = [system, {"role": "user", "content": first, "name": name()}]
    reply = {"role": "assistant", "content": name()}
    messages.append(reply | ({"reasoning_content": name()} if "thoughts" in maker.knows else {}))
    arguments: dict[str, Any] = {}
    if maker.knows & {"tools", "calls"}:
        call = {"name": name(), "arguments": {name(): name(), "nested": [name(), {name(): 1}]}}
        messages += [
            {"role": "user", "content": name()},
            {"role": "assistant", "content": "", "tool_calls": [{"id": name(), "type": "function", "function": call}]},
            {"role": "tool", "content": name(), "name": name(), "tool_call_id": name()},
            {"role": "assistant", "content": name()},
        ]
    if "tools" in maker.knows:
        spec = {"type": "string", "description": name(), "enum": [name(), name()]}
        parameters = {"type": "object", "properties": {name(): spec, "list": {"type": "array", "items": spec}}}
        function = {"name": name(), "description": name(), "parameters": parameters}
        arguments["tools"] = [{"type": "function", "function": function}]
    if "documents" in maker.knows:
        arguments["documents"] = [{"title": name(), "text": name()}, {"text": name()}]
        arguments["controls"] = {name(): name()}
    arguments |= {"model_identity": name(), "reasoning_effort": name(), "date_string": name()}
    messages.append({"role": "user", "content": name()})
    return {"messages": [{**message, "place": i} for i, message in enumerate(messages)], **arguments}


def formed(template: ChatTemplate, pair: Twins, arguments: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The control tokens of a prompt, and the tokens that give form: these beside tags."""
    vocab = pair.model.vocab
    ids = template.tokens(**arguments)
    form = {marker.token: marker for marker in structure(vocab, template.source(arguments.get("tools")))}
    return [i for i in ids if i in form and form[i].is_control], [i for i in ids if i in form]


def written(template: ChatTemplate, pair: Twins, arguments: dict[str, Any]) -> int:
    """How many markers stand in what the template itself wrote."""
    text, at, stretches = template.render(**arguments), 0, []
    for n, origin in runs_of(text):
        stretches += [str(text)[at : at + n]] if origin is None else []
        at += n
    markers = structure(pair.model.vocab, template.source(arguments.get("tools")))
    return sum(stretch.count(marker.text) for stretch in stretches for marker in markers)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_hostile_text_gives_the_control_tokens_of_harmless_text(made: tuple[Maker, Twins], data: st.DataObject) -> None:
    maker, pair = made
    template = ChatTemplate(maker.source, pair.model.vocab)
    hostile = conversation(maker, data.draw(st.lists(hostile_text(maker), min_size=N_TEXTS, max_size=N_TEXTS)))
    harmless = conversation(maker, [f"word {i}" for i in range(N_TEXTS)])
    control, form = formed(template, pair, hostile)
    assert control == formed(template, pair, harmless)[0]
    assert len(form) == written(template, pair, hostile)
    assert len(form) >= 2


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_ids_of_harmless_prompts_are_those_of_transformers(made: tuple[Maker, Twins], data: st.DataObject) -> None:
    maker, pair = made
    arguments = conversation(maker, data.draw(st.lists(HARMLESS, min_size=N_TEXTS, max_size=N_TEXTS)))
    opened = data.draw(st.booleans())
    if not opened:
        arguments["messages"] = arguments["messages"][:3]
    messages = arguments.pop("messages")
    form = {"add_generation_prompt": opened, "continue_final_message": False}
    ours = ChatTemplate(maker.source, pair.model.vocab).tokens(messages, **arguments, **form)
    theirs = pair.tokenizer.apply_chat_template(messages, **arguments, **form, return_dict=False)
    assert ours == theirs


@pytest.fixture(scope="module", params=["chatml", "harmony", "mistral"])
def sentencepiece_made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Maker, Twins]]:
    maker = MAKERS[request.param]
    pair = twins(tmp_path_factory.mktemp("spm") / request.param, maker, "spm")
    with pair.model:
        yield maker, pair


def test_sentencepiece_gets_no_space_beside_a_marker(sentencepiece_made: tuple[Maker, Twins]) -> None:
    """Only behind a token of the template stands the space that the tokenizer puts before every text."""
    maker, pair = sentencepiece_made
    vocab, template = pair.model.vocab, ChatTemplate(maker.source, pair.model.vocab)
    for marker in maker.control:
        messages = [{"role": "user", "content": f"a{marker}b {marker}{marker} c{marker}"}]
        text, form = str(template.render(messages)), {found.token for found in template.markers()}
        ids = template.tokens(messages)
        spelled = b"".join(
            vocab.piece(token, special=True)[(i > 0 and ids[i - 1] in form) and vocab.piece(token)[:1] == b" " :]
            for i, token in enumerate(ids)
        )
        assert spelled.decode().removeprefix(maker.bos or "") == text.removeprefix(maker.bos or "")
        assert ids.count(next(m.token for m in vocab.markers if m.text == marker)) == written_once(
            template, messages, marker
        )


def written_once(template: ChatTemplate, messages: list[dict[str, Any]], marker: str) -> int:
    harmless = [{**message, "content": "x"} for message in messages]
    return str(template.render(harmless)).count(marker)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_ids_by_sentencepiece_are_those_of_transformers(
    sentencepiece_made: tuple[Maker, Twins], data: st.DataObject
) -> None:
    maker, pair = sentencepiece_made
    arguments = conversation(maker, data.draw(st.lists(HARMLESS, min_size=N_TEXTS, max_size=N_TEXTS)))
    messages = arguments.pop("messages")
    ours = ChatTemplate(maker.source, pair.model.vocab).tokens(messages, **arguments)
    theirs = pair.tokenizer.apply_chat_template(messages, **arguments, add_generation_prompt=True, return_dict=False)
    assert ours == theirs
