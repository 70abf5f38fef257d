"""Drafts without some layers: exact replay of acceptance, the search on a tiny family, and the sibling it makes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_specquant.bench.papers.draft_layers import Candidate, Search, search_layers
from edge_specquant.bench.papers.long_context import replayed
from edge_specquant.cli.main import root
from edge_specquant.errors import UsageError
from edge_specquant.gguf.convert.skipped_layers import SKIP, add_skipped
from edge_specquant.gguf.family.family import Family
from edge_specquant.gguf.format.header import read_card
from edge_specquant.gguf.quantize.quantize import prune_gguf
from edge_specquant.params import SamplingParams, SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.models.default_siblings import choose_siblings


def _silent(*_: object) -> None:
    pass


def _played(same: list[bool], n_draft: int) -> tuple[float, float]:
    """The same by walking token by token."""
    position = n_rounds = n_accepted = n_drafted = 0
    while position < len(same):
        n_rounds += 1
        n_here = min(n_draft, len(same) - position)
        n_drafted += n_here
        for offset in range(n_here):
            if not same[position + offset]:
                break
            n_accepted += 1
        else:
            offset = n_here
        position += offset + 1
    return n_accepted / n_drafted, 1 + n_accepted / n_rounds


@pytest.mark.parametrize("n_draft", [1, 3, 8])
def test_replay_is_what_token_by_token_gives(n_draft: int) -> None:
    rng = random.Random(n_draft)
    for share in (0.0, 0.3, 0.8, 1.0):
        same = [rng.random() < share for _ in range(57)]
        assert replayed(same, n_draft) == pytest.approx(_played(same, n_draft))
    assert replayed([True] * 50, 4) == (1.0, 5.0)
    assert replayed([False] * 7, 4)[1] == 1.0
    assert replayed([], 4) == (0.0, 1.0)


@pytest.fixture
def family(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Family:
    """The tiny Llama, converted as a user would."""
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))
    done = CliRunner().invoke(
        root, ["convert", str(tiny_gguf), "--name", "tiny", "--variants", "f16,q4", "--no-quality", "--threads", "1"]
    )
    assert done.exit_code == 0, done.output
    return Family.open("tiny")


def test_a_pruned_copy_has_the_other_layers_and_the_same_vocabulary(family: Family, tmp_path: Path) -> None:
    before = family.card("q4")
    prune_gguf(family.path("q4"), tmp_path / "less.gguf", [0])
    after = read_card(tmp_path / "less.gguf")
    assert after.n_layer == before.n_layer - 1 and after.n_file_bytes < before.n_file_bytes
    assert after.vocabulary_sha256 == before.vocabulary_sha256


def test_the_search_tries_every_layer_and_keeps_to_its_word(family: Family) -> None:
    found = search_layers(family, "f16", "q4", n_threads=1, say=_silent)
    n_layer = family.card("q4").n_layer
    assert {one.dropped for one in found.tried} >= {(layer,) for layer in range(n_layer)}
    assert found.plain.dropped == () and found.best.dropped
    assert all(0 <= one.agreement <= 1 and one.tokens_per_s > 0 for one in found.tried)
    assert not list(family.folder.glob(".draft-layers-*"))


@pytest.mark.parametrize(("gain", "pays"), [(1.0, False), (1.02, False), (1.04, True)])
def test_only_a_clear_gain_pays(gain: float, pays: bool) -> None:
    plain, best = Candidate((), 0.8, 0.01, 50.0, 3), Candidate((2, 5), 0.75, 0.008, 50.0 * gain, 3)
    found = Search("f16", "q4", plain, best, (best,), 40.0)
    assert found.pays is pays
    assert ("no layer is dropped" in found.sentence) is not pays and "layers 2, 5" in found.sentence


def test_the_sibling_is_verified_chosen_as_draft_and_changes_no_reply(family: Family) -> None:
    with_skip = add_skipped(family, "q4", [0], n_threads=1, progress=_silent)
    assert all(finding.ok for finding in with_skip.verify())
    options = EngineOptions(n_ctx=128, n_threads=1, calibrate=False)
    assert choose_siblings(with_skip, options, Request(prompt="x")) == ("f16", f"lookup+{SKIP}")
    with Runtime.local(with_skip.folder, options) as runtime:
        replies = []
        for draft in ("none", SKIP):
            replies.append([event.token_id for event in runtime.generate(_greedy(draft))])
    assert replies[0] == replies[1]


def _greedy(draft: str) -> Request:
    return Request(
        prompt="hello",
        raw=True,
        max_tokens=24,
        sampling=SamplingParams(temperature=0),
        speculation=SpeculationParams(draft=draft, n_draft=None if draft == "none" else 3),
    )


@pytest.mark.parametrize("layers", [[], [99], [-1], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_layers_that_cannot_go_are_refused(family: Family, layers: list[int]) -> None:
    with pytest.raises(UsageError, match="layers"):
        add_skipped(family, "q4", layers, progress=_silent)


def test_on_the_command_line(family: Family, tiny_gguf: Path) -> None:
    arguments = ["convert", str(tiny_gguf), "--name", "tiny", "--variants", "f16,q4", "--no-quality", "--threads", "1"]
    done = CliRunner().invoke(root, [*arguments, "--draft-layers", "0"])
    assert done.exit_code == 0 and "asked for" in done.output
    assert SKIP in Family.open("tiny").variants
    searched = CliRunner().invoke(root, [*arguments, "--draft-layers", "auto"])
    assert searched.exit_code == 0 and "agrees on" in searched.output
    wrong = CliRunner().invoke(root, [*arguments, "--draft-layers", "many"])
    assert wrong.exit_code != 0 and "--draft-layers" in str(wrong.output) + str(wrong.exception)
