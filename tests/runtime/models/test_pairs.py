"""Any pair (case A15): a model of another family, or a bare file, drafts for a target that shares its token ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
from click.testing import CliRunner
from runtime_rig import GREEDY, drained

from edge_specquant.cli.main import root
from edge_specquant.errors import FamilyError, VocabularyError
from edge_specquant.gguf.convert.convert import convert, open_source, plan_conversion
from edge_specquant.gguf.family.family import Family
from edge_specquant.gguf.family.guests import guest, require_same_ids
from edge_specquant.gguf.format.header import read_card
from edge_specquant.native.selftest.tiny import write_tiny_llama
from edge_specquant.params import SamplingParams, SpeculationParams
from edge_specquant.placement.cost.sibling import siblings_of
from edge_specquant.placement.machine.this_machine import probe_here
from edge_specquant.placement.plan.plan import make_plan
from edge_specquant.placement.plan.plan_types import Wish
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime

OPTIONS = EngineOptions(calibrate=False, n_ctx=256, n_threads=1)
PROMPT = "Tell me of the sea and the stars."


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller model of the same vocabulary, with other weights, another shape and padding rows behind it."""
    return write_tiny_llama(tmp_path_factory.mktemp("small") / "small.gguf", n_embd=64, seed=5, n_padding_tokens=8)


@pytest.fixture(scope="module")
def small_family(small: Path) -> Family:
    return convert(plan_conversion(open_source(str(small)), "small"))


def renamed(source: Path, path: Path, old: bytes, new: bytes) -> Path:
    """The file with one token's text changed to another of the same length."""
    field = gguf.GGUFReader(source).fields["tokenizer.ggml.tokens"]
    index = next(i for i, part in enumerate(field.data) if bytes(field.parts[part]) == old)
    data = bytearray(source.read_bytes())
    at = int(field.offset) + sum(part.nbytes for part in field.parts[: field.data[index]])
    data[at : at + len(old)] = new
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def runtime(tiny_family: Family) -> Iterator[Runtime]:
    with Runtime.local(tiny_family.folder, OPTIONS) as opened:
        yield opened


def asked(draft: str, sampling: SamplingParams = GREEDY) -> Request:
    speculation = SpeculationParams(draft, 4 if draft != "none" else None)
    return Request(prompt=PROMPT, target="f16", max_tokens=40, speculation=speculation, sampling=sampling)


def replies(runtime: Runtime, draft: str, sampling: SamplingParams = GREEDY) -> list[int]:
    _, ids, end = drained(runtime.generate(asked(draft, sampling)))
    assert end.stats is not None and (draft == "none" or end.stats.n_drafted > 0)
    return ids


def test_a_draft_from_elsewhere_changes_no_reply(runtime: Runtime, small_family: Family, small: Path) -> None:
    plain = replies(runtime, "none")
    for draft in ("small:q4", f"{small}", "lookup+small:f16", "q4+small:q8"):
        assert replies(runtime, draft) == plain, draft
    hot = SamplingParams(temperature=1.0, seed=7)
    assert replies(runtime, "small:q4", hot) == replies(runtime, "none", hot)


def test_the_engine_process_knows_guests_too(runtime: Runtime, tiny_family: Family, small_family: Family) -> None:
    request = asked("small:q4")
    with Runtime.process(tiny_family.folder, OPTIONS) as other:
        assert other.siblings(request) == ("f16", "small:q4")
        _, ids, end = drained(other.generate(request))
    assert ids == replies(runtime, "none") and end.stats is not None and end.stats.n_drafted > 0


def test_ids_are_compared_and_the_first_difference_is_named(tiny_gguf: Path, small: Path, tmp_path: Path) -> None:
    require_same_ids(read_card(tiny_gguf), read_card(small))  # longer by padding
    require_same_ids(read_card(small), read_card(tiny_gguf))  # shorter by padding
    other = renamed(small, tmp_path / "other.gguf", b"th", b"qz")
    with pytest.raises(VocabularyError, match=r"other\.gguf cannot draft for .*: token \d+ is 'th' in the .* and 'qz'"):
        require_same_ids(read_card(tiny_gguf), read_card(other))


def test_a_stranger_is_refused_before_anything_is_drafted(runtime: Runtime, small: Path, tmp_path: Path) -> None:
    other = renamed(small, tmp_path / "other.gguf", b"th", b"qz")
    with pytest.raises(VocabularyError, match="'th' in the target and 'qz' in the draft"):
        replies(runtime, str(other))


def test_names_that_lead_nowhere_say_so(tiny_family: Family) -> None:
    for name, said in (("nobody:q4", "there is no family 'nobody'"), ("tiny:q3", "has no 'q3'")):
        with pytest.raises(FamilyError, match=said):
            guest(name)


def test_the_plan_counts_both_and_no_guest_becomes_the_target(tiny_family: Family, small_family: Family) -> None:
    plan = make_plan(siblings_of(tiny_family, "small:q4"), probe_here(), Wish(draft="small:q4", n_ctx=256))
    assert plan.target.variant in tiny_family.variants
    assert plan.draft is not None and plan.draft.variant == "small:q4" and plan.draft.n_bytes > 0


def test_pairs_lists_what_fits(tiny_family: Family, small_family: Family) -> None:
    done = CliRunner().invoke(root, ["models", "pairs", "tiny", "--json"])
    assert done.exit_code == 0, done.output
    pairs = json.loads(done.output)["pairs"]
    assert {(pair["target"], pair["draft"]) for pair in pairs} >= {("f16", "small:q4"), ("q4", "small:q4")}
    assert all(pair["gain"] > 0 and pair["is_measured"] is False for pair in pairs)
    shown = CliRunner().invoke(root, ["models", "pairs", "tiny"])
    assert "small:q4" in shown.output and "about" in shown.output
    none = CliRunner().invoke(root, ["models", "pairs", "small"])
    assert none.exit_code == 0 and "no other family here" in none.output
