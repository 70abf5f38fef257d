"""`run` and `chat --plain` as a person uses them: real processes, the real demo model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_specquant.cli.shared.options import parse_logit_bias
from edge_specquant.cli.shared.text import shown
from edge_specquant.errors import UsageError

ASK = ["run", "demo", "Explain why the sky is blue.", "--temperature", "0", "--max-tokens", "32"]


def edge(arguments: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_specquant", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, encoding="utf-8")


def answer(*extra: str) -> dict[str, object]:
    done = edge([*ASK, "--json", *extra])
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("demo_family")
class TestRun:
    def test_a_draft_changes_nothing(self) -> None:
        """The law, on the demo family: F16 with the 4-bit draft, greedy, against F16 alone."""
        alone = answer("--target", "f16", "--draft", "none")
        for extra in (*(("--n-draft", n) for n in ("1", "2", "3", "7", "16")), ()):
            drafted = answer("--target", "f16", "--draft", "q4", *extra)
            assert drafted["token_ids"] == alone["token_ids"]
            assert drafted["text"] == alone["text"]

    def test_strict_is_the_same_whoever_drafts(self) -> None:
        found = [answer("--strict", "--target", "f16", "--draft", d)["token_ids"] for d in ("none", "lookup", "q4")]
        assert found[0] == found[1] == found[2]

    def test_a_seed_repeats_across_processes_and_drafts(self) -> None:
        """Case B5."""
        sampled = ["run", "demo", "Tell me a story.", "--max-tokens", "16", "--json", "--target", "q8"]
        replies = [
            json.loads(edge([*sampled, "--seed", "7", "--draft", d]).stdout)["token_ids"]
            for d in ("none", "q4", "none")
        ]
        assert replies[0] == replies[1] == replies[2]
        assert json.loads(edge([*sampled, "--seed", "8"]).stdout)["token_ids"] != replies[0]

    def test_json_schema_gives_json(self, tmp_path: Path) -> None:
        schema = tmp_path / "naïve schema's.json"
        schema.write_text('{"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 2, "maxItems": 2}')
        found = answer("--json-schema", str(schema), "--draft", "q4")
        assert set(json.loads(str(found["text"]))) <= {"red", "blue"}

    def test_a_schema_may_be_written_out_and_a_regex_binds_too(self) -> None:
        found = answer("--schema", '{"type": "integer", "minimum": 1, "maximum": 5}', "--target", "q8")
        assert 1 <= json.loads(str(found["text"])) <= 5
        assert re.fullmatch("[0-9]{2}-(a|b)", str(answer("--regex", "[0-9]{2}-(a|b)")["text"]))

    def test_the_prompt_may_come_from_stdin_and_stops_end_it(self) -> None:
        done = edge(
            ["run", "demo", "--raw", "--temperature", "0", "--max-tokens", "20", "--stop", ",", "--json"], "1, 2, 3"
        )
        found = json.loads(done.stdout)
        assert "," not in found["text"] and found["stats"]["n_prompt"] > 0

    def test_bad_input_is_one_sentence(self, tmp_path: Path) -> None:
        for arguments, words in (
            (["run", "nowhere", "hi"], "there is no family"),
            (["run", "demo", "hi", "--top-p", "2"], "top_p is 2.0"),
            (["run", "demo", "hi", "--target", "q7"], "no 'q7'"),
            (["run", "demo", "hi", "--json-schema", str(tmp_path / "none.json")], "cannot be read"),
            (["run", "demo", "hi", "--schema", '{"items": {"not": {}}}'], "'not' at #/items"),
            (["run", "demo", "hi", "--schema", "{"], "is not JSON"),
            (["run", "demo", "word " * 200, "--ctx", "64"], "the context holds"),
        ):
            done = edge(arguments)
            assert done.returncode == 1 and words in done.stderr, done.stderr
            assert "Traceback" not in done.stderr and done.stderr.strip().count("\n") == 0, done.stderr
        assert "Traceback" in edge(["--debug", "run", "nowhere", "hi"]).stderr

    @pytest.mark.skipif(os.name == "nt", reason="no SIGINT to another process there")
    def test_ctrl_c_ends_it_soon(self) -> None:
        command = [sys.executable, "-m", "edge_specquant", "run", "demo", "Write a long story.", "--max-tokens", "3000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            process.communicate(timeout=60)
            assert process.returncode == 130
            assert time.monotonic() - started < 30  # a hang, not a speed: an abort is one graph node away

    def test_plain_chat_reuses_its_prefix(self) -> None:
        lines = "My name is Ada.\nWhat is my name?\n/stats\n/nonsense\n/regen\n/clear\n/regen\n/quit\n"
        done = edge(["chat", "demo", "--plain", "--temperature", "0", "--max-tokens", "12", "--target", "q8"], lines)
        assert done.returncode == 0, done.stderr
        assert "reused" in done.stderr
        assert "there is no '/nonsense'" in done.stderr and "nothing to answer again" in done.stderr
        kept = json.loads(edge(["history", "list", "--json"]).stdout)["conversations"]
        assert kept[0]["title"] == "My name is Ada." and kept[0]["n_messages"] >= 4
        (hit, *_) = json.loads(edge(["history", "search", '"name is Ada"', "--json"]).stdout)["hits"]
        assert hit["conversation"] == kept[0]["id"]


def test_control_characters_are_shown_never_obeyed() -> None:
    """Case G3."""
    assert shown("a\x1b[31mb\x07\r\x00\x9b") == "a␛[31mb␇␍␀\\x9b"
    assert shown("line\n\ttab é漢👩\u200d👧") == "line\n\ttab é漢👩\u200d👧"


@pytest.mark.parametrize("bad", ["5", "x=1", "5=y", "=3"])
def test_logit_bias_must_be_pairs(bad: str) -> None:
    with pytest.raises(UsageError, match="logit-bias"):
        parse_logit_bias([bad])


def test_every_verb_has_help() -> None:
    from edge_specquant.cli.main import root

    runner = CliRunner()
    for verb in root.list_commands(None):  # type: ignore[arg-type]
        done = runner.invoke(root, [verb, "--help"])
        assert done.exit_code == 0 and done.output.startswith("Usage"), verb
