"""The check after a conversion is silent for the right tokenizer and names the difference for a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_checkpoints import write_checkpoint

from edge_specquant.gguf.checkpoint.base import plan_base, write_base
from edge_specquant.gguf.checkpoint.checkpoint import open_checkpoint
from edge_specquant.gguf.checkpoint.tokencheck import tokenizer_note


@pytest.mark.parametrize("name", ["qwen2", "llama3", "mistral"])
def test_the_right_tokenizer_passes(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path / "tiny", name)
    write_base(plan_base(open_checkpoint(tmp_path / "tiny"), "F16", name="tiny"), tmp_path / "tiny.gguf")
    assert tokenizer_note(tmp_path / "tiny", tmp_path / "tiny.gguf") is None


def test_another_tokenizer_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    write_checkpoint(folder, "qwen2")
    write_base(plan_base(open_checkpoint(folder), "F16", name="tiny"), tmp_path / "tiny.gguf")
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    del document["model"]["merges"][40:60]
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    note = tokenizer_note(folder, tmp_path / "tiny.gguf")
    assert note is not None
    assert "the first difference at token" in note
