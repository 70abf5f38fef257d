"""Makes the siblings of one family, in the order they depend on each other, and records each as soon as it is whole.

Takes a plan, the family's folder and the manifest to build on. Float siblings come from the checkpoint, the others
from a float one or from the GGUF source. Knows nothing of where the folder ends up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...errors import UsageError
from ..checkpoint.source import FLOAT_VARIANTS, Source
from ..family.family import check_name, remember_proof, sha256_of
from ..family.manifest import (
    ImatrixRecord,
    Manifest,
    VariantRecord,
    engine_version,
    now_utc,
)
from ..family.ownership import FamilyFolder
from ..format.atomic import require_space
from ..format.header import ModelCard, read_card
from ..quantize.collect import collect_imatrix, read_text
from ..quantize.imatrix import read_imatrix, usable_importances, write_imatrix
from ..quantize.quantize import expected_file_bytes, quantize_gguf
from ..quantize.recipe import DEFAULT_VARIANTS, Recipe, may_quantize, plan_recipe, rule_for
from .quality import measure_family

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, done, total), in bytes or tokens; a total of 0 is unknown."""

_BASE_NAME = ".base.gguf"


@dataclass(frozen=True, slots=True)
class ConvertPlan:
    """What a conversion would do; the dry run prints it."""

    name: str
    source: Source
    recipes: tuple[Recipe, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """force: make everything anew. n_threads 0: every core. imatrix: None, "auto" or a file.

    calibration: the text for "auto", None for the shipped one. measure: quality of each sibling on held-out text.
    """

    force: bool = False
    n_threads: int = 0
    imatrix: str | Path | None = None
    calibration: Path | None = None
    measure: bool = False


def plan_conversion(
    source: Source, name: str | None, variants: Sequence[str] = DEFAULT_VARIANTS, *, spare_sensitive: bool = False
) -> ConvertPlan:
    """The recipes and the bytes they need, without writing anything. Raises UsageError for an unknown variant."""
    if not variants:
        raise UsageError("no variant was asked for; the usual ones are f16,q8,q4")
    wanted = list(dict.fromkeys(rule_for(variant).name for variant in variants))
    # A checkpoint's float siblings come first: the others are made from them.
    ordered = sorted(wanted, key=lambda variant: variant not in FLOAT_VARIANTS)
    recipes = tuple(plan_recipe(source.tensors, variant, spare_sensitive=spare_sensitive) for variant in ordered)
    n_bytes = sum(expected_file_bytes(source.n_header_bytes, recipe) for recipe in recipes)
    return ConvertPlan(check_name(name or source.default_name), source, recipes, n_bytes)


def make_siblings(
    plan: ConvertPlan, home: FamilyFolder, manifest: Manifest, options: ConvertOptions, report: Progress
) -> None:
    """Makes what `manifest` lacks. Each sibling joins the family when it is whole; a replacement takes over as a whole.

    Raises DiskFullError before anything is written, QuantizeError, CheckpointError, UsageError (a foreign matrix).
    """
    source = plan.source
    todo = [recipe for recipe in plan.recipes if not _is_finished(home.path, manifest, recipe, options)]
    _require_space(plan, home.path, todo)
    home.begin(manifest)
    assert home.manifest is not None
    replaces = bool(home.manifest.variants) and not manifest.variants
    run = _Run(plan, home, options, report, replaces)
    for recipe in [recipe for recipe in todo if _is_written(source, recipe)]:
        manifest = _write_float(run, manifest, recipe)
    quantized = [recipe for recipe in todo if not _is_written(source, recipe)]
    if quantized:
        with _base(run, manifest) as base:
            matrix = None
            if any(recipe.takes_imatrix for recipe in quantized):
                manifest, matrix = _prepare_imatrix(run, manifest, base)
            for recipe in quantized:
                manifest = _quantize(run, manifest, recipe, base, matrix)
    if replaces:
        manifest = home.commit(manifest)
    if options.measure:
        manifest = home.commit(measure_family(home.path, manifest, options.n_threads, report))
    _add_notes(home, manifest, source)


@dataclass(frozen=True, slots=True)
class _Run:
    """What stays the same over all siblings of one run."""

    plan: ConvertPlan
    home: FamilyFolder
    options: ConvertOptions
    report: Progress
    replaces: bool

    @property
    def folder(self) -> Path:
        return self.home.path

    def target(self, recipe: Recipe) -> Path:
        return self.home.new_file(f"{self.plan.name}-{recipe.variant}.gguf")

    def keep(self, manifest: Manifest) -> Manifest:
        """The manifest, on disk unless another family is being replaced: then all of it waits for the end."""
        return manifest if self.replaces else self.home.commit(manifest)


def _write_float(run: _Run, manifest: Manifest, recipe: Recipe) -> Manifest:
    assert run.plan.source.write_float is not None
    target = run.target(recipe)
    notes = run.plan.source.write_float(recipe.variant, target, partial(run.report, f"writing {recipe.variant}"))
    return _recorded(run, manifest, recipe, target, None, notes)


def _quantize(run: _Run, manifest: Manifest, recipe: Recipe, base: ModelCard, matrix: Path | None) -> Manifest:
    used = matrix if recipe.takes_imatrix else None
    target = run.target(recipe)
    quantize_gguf(
        base,
        target,
        _over_base(recipe, base),
        imatrix=used,
        n_threads=run.options.n_threads,
        progress=partial(run.report, f"writing {recipe.variant}"),
    )
    return _recorded(run, manifest, recipe, target, used, ())


def _over_base(recipe: Recipe, base: ModelCard) -> Recipe:
    """The same choices over the tensors of the base file; a tensor that is kept is kept in the base's own type."""
    there = {tensor.name: tensor for tensor in base.tensors}
    choices = tuple(
        replace(choice, tensor=there[choice.tensor.name], weight_type=there[choice.tensor.name].weight_type)
        if choice.weight_type == choice.tensor.weight_type
        else replace(choice, tensor=there[choice.tensor.name])
        for choice in recipe.choices
    )
    return Recipe(recipe.variant, choices)


def _recorded(
    run: _Run, manifest: Manifest, recipe: Recipe, path: Path, matrix: Path | None, notes: tuple[str, ...]
) -> Manifest:
    """The manifest with the new sibling in it."""
    card = read_card(path)
    sha256 = sha256_of(path, partial(run.report, f"hashing {recipe.variant}"))
    remember_proof(run.folder, path, sha256)
    record = VariantRecord(
        file=path.name,
        n_bytes=card.n_file_bytes,
        sha256=sha256,
        bits_per_weight=round(card.bits_per_weight, 4),
        weight_types=card.weight_type_counts,
        main_type=recipe.main_type,
        n_fallback_tensors=len(recipe.fallen_back),
        n_fallback_bytes=sum(choice.n_bytes for choice in recipe.fallen_back),
        fallback=recipe.describe_fallback(),
        recipe_sha256=recipe.sha256,
        imatrix_sha256=None if matrix is None or manifest.imatrix is None else manifest.imatrix.sha256,
        engine=engine_version(),
        created=now_utc(),
        notes=notes,
    )
    if not manifest.tokenizer_sha256:
        manifest = replace(manifest, tokenizer_sha256=card.vocabulary_sha256)
    return run.keep(manifest.with_variant(recipe.variant, record))


@contextmanager
def _base(run: _Run, manifest: Manifest) -> Iterator[ModelCard]:
    """What the engine quantizes from: the GGUF source itself, a float sibling, or a float file made for the moment."""
    source, folder = run.plan.source, run.folder
    if source.card is not None:
        yield source.card
        return
    for variant in FLOAT_VARIANTS:
        if variant in manifest.variants and (folder / manifest.variants[variant].file).is_file():
            yield read_card(folder / manifest.variants[variant].file)
            return
    assert source.write_float is not None
    temporary = run.home.new_file(_BASE_NAME)
    try:
        source.write_float("f16", temporary, partial(run.report, "writing a float base"))
        yield read_card(temporary)
    finally:
        run.home.discard(temporary)


def _is_written(source: Source, recipe: Recipe) -> bool:
    return source.card is None and recipe.variant in FLOAT_VARIANTS


def _is_finished(folder: Path, manifest: Manifest, recipe: Recipe, options: ConvertOptions) -> bool:
    """A sibling counts when the manifest lists it with this recipe and matrix, and the file has its size."""
    record = manifest.variants.get(recipe.variant)
    if record is None or record.recipe_sha256 != recipe.sha256:
        return False
    if options.imatrix is not None and recipe.takes_imatrix and not _has_matrix(manifest, record, options):
        return False
    path = folder / record.file
    return path.is_file() and path.stat().st_size == record.n_bytes


def _has_matrix(manifest: Manifest, record: VariantRecord, options: ConvertOptions) -> bool:
    """Whether the sibling was made with the matrix that is asked for."""
    kept = manifest.imatrix
    if kept is None or record.imatrix_sha256 != kept.sha256:
        return False
    named = options.calibration if options.imatrix == "auto" else options.imatrix
    return named is None or kept.origin == Path(named).name


def _require_space(plan: ConvertPlan, folder: Path, todo: Sequence[Recipe]) -> None:
    n_bytes = sum(expected_file_bytes(plan.source.n_header_bytes, recipe) for recipe in todo)
    floats_on_disk = any(variant in FLOAT_VARIANTS for variant in (recipe.variant for recipe in plan.recipes))
    if todo and plan.source.card is None and not floats_on_disk:
        n_bytes += plan.source.n_header_bytes + sum(tensor.n_bytes for tensor in plan.source.tensors)
    require_space(folder, n_bytes)


def _add_notes(home: FamilyFolder, manifest: Manifest, source: Source) -> None:
    """What this run had to say joins what earlier runs said."""
    notes = tuple(dict.fromkeys((*manifest.notes, *source.notes)))
    if notes != manifest.notes:
        home.commit(replace(manifest, notes=notes))


def _prepare_imatrix(run: _Run, manifest: Manifest, base: ModelCard) -> tuple[Manifest, Path | None]:
    """The importance matrix of this family, collected or brought along, beside its siblings; None when not wanted."""
    options, kept = run.options, manifest.imatrix
    if options.imatrix is None:
        return manifest, None
    if options.imatrix != "auto":
        matrix, origin = read_imatrix(Path(options.imatrix)), Path(options.imatrix).name
    elif kept is not None and options.calibration is None and _is_unchanged(run.folder, kept):
        return manifest, run.folder / kept.file
    else:
        text, origin = read_text(options.calibration)
        names = frozenset(tensor.name for tensor in base.tensors if may_quantize(tensor))
        collecting = partial(run.report, "collecting the importance matrix")
        matrix = collect_imatrix(base.path, names, text, origin, n_threads=options.n_threads, progress=collecting)
    _, notes = usable_importances(matrix, base.tensors)
    path = run.home.new_file(f"{manifest.name}.imatrix.gguf")
    write_imatrix(path, matrix)
    record = ImatrixRecord(path.name, sha256_of(path), origin, matrix.n_tokens)
    noted = replace(manifest, imatrix=record, notes=tuple(dict.fromkeys((*manifest.notes, *notes))))
    return run.keep(noted) if noted.variants else noted, path


def _is_unchanged(folder: Path, record: ImatrixRecord) -> bool:
    path = folder / record.file
    return path.is_file() and sha256_of(path) == record.sha256
