"""The nested pair as a user meets it: made, shown, verified, run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_specquant.cli.main import root
from edge_specquant.native.selftest.tiny import write_tiny_llama


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path / "home"))
    return write_tiny_llama(tmp_path / "tiny.gguf")


def output_of(*arguments: str) -> str:
    result = CliRunner().invoke(root, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_pair_is_made_shown_verified_and_run(source: Path) -> None:
    made = json.loads(output_of("convert", str(source), "--variants", "f16", "--nested", "--no-quality", "--json"))
    assert list(made["variants"]) == ["f16", "base", "nested"]
    assert "refines 'base'" in made["variants"]["nested"]["notes"][0]
    assert made["variants"]["nested"]["bits_per_weight"] < 9
    assert "ok   nested" in output_of("models", "verify", "tiny")
    common = ("run", "tiny", "--target", "nested", "--temperature", "0", "--max-tokens", "12", "--json", "the cat")
    alone = json.loads(output_of(*common, "--draft", "none").splitlines()[-1])
    drafted = json.loads(output_of(*common, "--draft", "base").splitlines()[-1])
    assert drafted["target"] == "nested" and "base" in drafted["draft"]
    assert drafted["token_ids"] == alone["token_ids"]


def test_a_dry_run_names_the_pair(source: Path) -> None:
    assert "nested pair" in output_of("convert", str(source), "--variants", "f16", "--nested", "--dry-run")
