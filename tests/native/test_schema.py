"""Grammars from JSON schemas: whatever follows one is JSON of the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge_specquant.errors import GrammarError
from edge_specquant.native.opening import open_model
from edge_specquant.native.sampler import Grammar
from edge_specquant.native.schema import schema_to_gbnf


def accepts(tiny: Path, schema: dict[str, Any], text: str) -> bool:
    """Whether the grammar lets the text through, token by token."""
    with open_model(tiny, vocab_only=True) as model:
        grammar = Grammar(schema_to_gbnf(schema), model.vocab.handle, model.vocab.n_tokens)
        tokens = model.vocab.tokenize(text)
        for token in tokens[1:] if model.vocab.piece(tokens[0]) == b" " else tokens:  # this vocabulary's own space
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        grammar.close()
        return True


@pytest.mark.parametrize(
    "value", ['a "quote"', "back\\slash", "line\nend", "tab\t", "é", "\N{GRINNING FACE}", "\u2028", "", 1, None]
)
def test_constants_are_written_as_json(tiny_gguf: Path, value: Any) -> None:
    assert accepts(tiny_gguf, {"const": value}, json.dumps(value, ensure_ascii=False))
    assert accepts(tiny_gguf, {"enum": ["x", value]}, json.dumps(value, ensure_ascii=False))


def test_names_are_written_as_json(tiny_gguf: Path) -> None:
    name = 'q"\\é'
    schema = {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}
    assert accepts(tiny_gguf, schema, json.dumps({name: 1}, ensure_ascii=False))


@pytest.mark.parametrize("control", ["\n", "\x00", "\x1b", "\x7f"])
def test_no_raw_control_character_gets_into_a_string(tiny_gguf: Path, control: str) -> None:
    assert accepts(tiny_gguf, {"type": "string"}, '"ab')
    assert not accepts(tiny_gguf, {"type": "string"}, f'"a{control}')


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"properties": 5}, {"$ref": "https://x/"}, {"pattern": "(("}])
def test_what_cannot_be_used_is_a_grammar_error(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarError):
        schema_to_gbnf(schema)
