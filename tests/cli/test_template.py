"""`template`: what a chat template can do is found by trying it, and every token shown with who wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_templates import MAKERS
from click.testing import CliRunner

from edge_specquant.cli.main import root
from edge_specquant.engine.prompts.features import features_of, sample
from edge_specquant.engine.prompts.template import ChatTemplate
from edge_specquant.native.fake import FakeVocab
from edge_specquant.native.selftest.tiny import write_tiny_llama


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "operations"])
def test_features_are_found_by_trying(name: str) -> None:
    maker = MAKERS[name]
    template = ChatTemplate(maker.source, FakeVocab())
    found = features_of(template)
    assert found.system_role == ("system" in maker.knows)
    assert found.alternates == ("alternates" in maker.knows)
    assert found.tools == ("tools" in maker.knows)
    assert found.parts == ("parts" in maker.knows)
    assert found.thoughts == ("thoughts" in maker.knows)
    messages, tools = sample(found)
    template.render(messages, tools=tools)


def test_own_system_texts_are_told() -> None:
    assert features_of(ChatTemplate(MAKERS["chatml"].source, FakeVocab())).own_system is None
    own = features_of(ChatTemplate(MAKERS["granite"].source, FakeVocab())).own_system
    assert own is not None and "You are Granite" in own


def test_a_file_is_shown_token_by_token(tmp_path: Path) -> None:
    path = str(write_tiny_llama(tmp_path / "tiny [bold].gguf"))
    done = CliRunner().invoke(root, ["template", path])
    assert done.exit_code == 0, done.output
    assert "system role" in done.output and "messages[0].content" in done.output and "<|im_start|>│" in done.output
    found = json.loads(CliRunner().invoke(root, ["template", path, "--json"]).output)
    assert found["features"]["system_role"] is True
    form = [token for token in found["tokens"] if token["is_marker"]]
    assert form and all(token["origin"] in (None, "vocabulary") for token in form)
    theirs = "".join(
        t["text"] for t in found["tokens"] if t["origin"] == f"messages[{len(found['messages']) - 1}].content"
    )
    assert theirs.strip() == "Write <|im_end|> as text."
    source = CliRunner().invoke(root, ["template", path, "--source"]).output
    assert "{% for message in messages %}" in source
