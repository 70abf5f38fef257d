"""A family with its nested pair: recorded, proven, measured, run by name; right for every architecture we convert."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from runtime_rig import GREEDY, drained
from tiny_checkpoints import write_checkpoint

from edge_specquant.errors import FamilyError
from edge_specquant.gguf.convert.convert import convert, open_source, plan_conversion
from edge_specquant.gguf.convert.nested_family import add_nested, is_nested
from edge_specquant.gguf.family.family import Family
from edge_specquant.gguf.nested.nested import read_planes
from edge_specquant.gguf.nested.nested_codec import decode
from edge_specquant.gguf.nested.nested_open import open_any, open_nested
from edge_specquant.native.kernel.nested_planes import ungrouped
from edge_specquant.native.model import NativeModel
from edge_specquant.native.nested.nested import NestedModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.params import SpeculationParams
from edge_specquant.placement.cost.sibling import siblings_of
from edge_specquant.request import Request
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.models.default_siblings import choose_siblings

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")


@pytest.fixture
def family(home: Path, tiny: Path) -> Family:
    del home
    return add_nested(convert(plan_conversion(open_source(str(tiny)), "tiny", ["f16", "q8"])), n_threads=1)


def test_both_siblings_are_recorded_and_proven(family: Family) -> None:
    assert list(family.variants) == ["f16", "q8", "base", "nested"]
    assert all(finding.ok for finding in family.verify())
    assert is_nested(family, "nested") and not is_nested(family, "base") and not is_nested(family, "f16")
    bits = {name: variant.bits_per_weight for name, variant in family.variants.items()}
    assert bits["nested"] - bits["base"] == pytest.approx(4, abs=0.1) and bits["nested"] < bits["q8"] + 0.1
    assert family.variants["nested"].weight_types == {"Q4_0 + tied": family.variants["base"].weight_types["Q4_0"]}


def test_a_changed_residual_is_found(family: Family) -> None:
    path = family.variant("nested").path
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    assert [finding.subject for finding in family.verify() if not finding.ok] == ["nested"]
    with pytest.raises(FamilyError, match="was changed"):
        family.path("nested")


def test_a_pair_is_kept_until_forced_or_of_another_kind(family: Family) -> None:
    before = family.variant("nested").path.stat().st_mtime_ns
    assert add_nested(family).variant("nested").path.stat().st_mtime_ns == before
    free = add_nested(family, kind="q8_0", n_threads=1)
    assert free.variant("nested").weight_types == {"Q4_0 + q8_0": free.variant("base").weight_types["Q4_0"]}
    assert free.variant("nested").sha256 != family.variant("nested").sha256


@pytest.mark.usefixtures("home")
def test_without_a_float_sibling_there_is_nothing_to_nest(tiny: Path) -> None:
    family = convert(plan_conversion(open_source(str(tiny)), "tiny", ["q8"]))
    with pytest.raises(FamilyError, match="no f16 sibling"):
        add_nested(family)


def test_quality_of_the_target_is_measured_with_both_planes(family: Family) -> None:
    measured = add_nested(family, measure=True, n_threads=1)
    quality = {name: variant.quality for name, variant in measured.variants.items()}
    base, nested, q8 = (quality[name] for name in ("base", "nested", "q8"))
    assert base is not None and nested is not None and q8 is not None
    assert base.mean_kld is not None and nested.mean_kld is not None and q8.mean_kld is not None
    assert nested.mean_kld < 0.1 * base.mean_kld and nested.mean_kld < 2 * q8.mean_kld


def test_greedy_replies_of_the_runtime_do_not_depend_on_the_base_drafting(family: Family) -> None:
    options = EngineOptions(calibrate=False, n_ctx=256, n_threads=1)
    replies = {}
    for draft, n_draft in (("none", 0), ("base", 3), ("lookup+base", 3)):
        with Runtime.local(family.folder, options) as runtime:
            request = Request(
                prompt="the cat and the hat",
                target="nested",
                sampling=GREEDY,
                max_tokens=24,
                speculation=SpeculationParams(draft, n_draft),
            )
            replies[draft] = drained(runtime.generate(request))[1]
    assert replies["none"] == replies["base"] == replies["lookup+base"]


def test_the_base_drafts_for_its_target_unless_told_otherwise(family: Family) -> None:
    request = Request(prompt="x", target="nested")
    assert choose_siblings(family, EngineOptions(), request) == ("nested", "lookup+base")


def test_the_planner_counts_both_files_of_the_target_and_the_base_once(family: Family) -> None:
    siblings = {sibling.name: sibling for sibling in siblings_of(family)}
    assert set(siblings) == {"f16", "q8", "base", "nested"}
    nested, base = siblings["nested"], siblings["base"]
    assert nested.holds(base) and nested.path == family.variant("nested").path and nested.is_cpu_only
    residual = family.variant("nested").path.stat().st_size
    assert 0.9 * residual < nested.n_bytes - base.n_bytes <= residual
    assert nested.agreement > base.agreement


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_computes_with_base_plus_residual(architecture: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint", architecture, dtype="F16")
    family = convert(plan_conversion(open_source(str(tmp_path / "checkpoint")), architecture, ["f16"]))
    family = add_nested(family, n_threads=1)
    params = ContextParams(n_ctx=64, n_batch=64, max_rows=24, n_threads=1)
    tokens = list(range(300, 324))
    reference = _with_decoded_weights(family, tmp_path / "reference.gguf")
    with NativeModel(reference, use_extra_bufts=True) as exact, exact.context(params) as context:
        expected = context.decode(tokens, 0, 24).copy()
    with open_any(family.path("nested")) as model, model.context(params) as context:
        assert isinstance(model, NestedModel)
        found = context.decode(tokens, 0, 24).copy()
        with model.base.context(params) as draft:
            by_base = draft.decode(tokens, 0, 24).copy()
    error, of_base = (float(np.sqrt(np.square(each - expected).mean())) for each in (found, by_base))
    assert error < 0.1 * expected.std() and error < 0.5 * of_base
    with open_nested(family.path("nested"), use_kernel=False) as plain, plain.context(params) as context:
        assert np.sqrt(np.square(context.decode(tokens, 0, 24) - expected).mean()) < 0.1 * expected.std()


def _with_decoded_weights(family: Family, target: Path) -> Path:
    """The F16 sibling with the weights that the nested pair stands for."""
    base_path, planes = read_planes(family.path("nested"))
    base, residual = (np.memmap(path, dtype=np.uint8, mode="r") for path in (base_path, family.path("nested")))
    target.write_bytes(family.path("f16").read_bytes())
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(target, "r+").tensors}
    for plane in planes:
        blocks = base[plane.base_offset :][: plane.n_base_bytes].reshape(plane.n_rows, plane.n_blocks, 18)
        nibbles = ungrouped(residual[plane.residual_offset :][: plane.n_residual_bytes], plane.n_rows, plane.n_blocks)
        data = tensors[plane.name].data
        data[:] = decode(blocks, nibbles).reshape(data.shape)
    return target
