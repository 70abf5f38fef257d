"""Adds the nested pair to a family: `base`, an ordinary 4-bit sibling, and `nested`, the 8-bit target around it.

Takes a family with a float sibling; gives the family with both recorded, hashed and measured. The importance matrix of
the family, if it has one, weighs the base's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import FamilyError
from ..family.family import Family, remember_proof, sha256_of
from ..family.manifest import Manifest, VariantRecord, engine_version, now_utc
from ..family.ownership import FamilyFolder, require_no_link
from ..format.atomic import only_writer
from ..format.container import read_container
from ..format.header import read_card
from ..nested.nested import BASE, NESTED, RESIDUALS, NestedFiles, is_residual, write_nested
from ..quantize.imatrix import read_imatrix, usable_importances
from .quality import measure_family

Progress = Callable[[str, int, int], None]
_FLOATS = ("f16", "bf16")


def add_nested(
    family: Family,
    *,
    kind: str = RESIDUALS[0],
    force: bool = False,
    measure: bool = False,
    n_threads: int = 0,
    progress: Progress | None = None,
) -> Family:
    """The family with its nested pair; a pair that is there already is kept unless `force`.

    kind: see `write_nested`. Raises FamilyError when no float sibling is there to make it from.
    """
    report = progress or _silent
    folder = family.folder
    with only_writer(folder.with_name(f".lock-{family.name}"), lambda: report("waiting for another conversion", 0, 0)):
        require_no_link(folder)
        home = FamilyFolder(folder)
        manifest = home.manifest
        if manifest is None:
            raise FamilyError(f"{folder} is not a family: it has no manifest; make one: edge-specquant convert SOURCE")
        recipe = f"nested {kind}"
        known = manifest.variants.get(NESTED)
        if force or known is None or known.recipe_sha256 != recipe or BASE not in manifest.variants:
            manifest = _make(home, manifest, kind, recipe, n_threads, report)
        if measure:
            home.commit(measure_family(folder, manifest, n_threads, report))
    return Family.open(folder)


def is_nested(family: Family, variant: str) -> bool:
    """Whether this sibling is the target of a nested pair: its file alone is no model."""
    return variant == NESTED and is_residual(read_container(family.variant(variant).path))


def _make(home: FamilyFolder, manifest: Manifest, kind: str, recipe: str, n_threads: int, report: Progress) -> Manifest:
    source = next((name for name in _FLOATS if name in manifest.variants), None)
    if source is None:
        raise FamilyError(
            f"family '{manifest.name}' has no f16 sibling to nest; make one: edge-specquant convert --variants f16,…"
        )
    folder = home.path
    source_path = folder / manifest.variants[source].file
    written = write_nested(
        source_path,
        home.new_file(f"{manifest.name}-{BASE}.gguf"),
        home.new_file(f"{manifest.name}-{NESTED}.gguf"),
        kind=kind,
        importances=_importances(folder, manifest, source_path),
        n_threads=n_threads,
        progress=partial(report, "nesting"),
    )
    base_bits, both_bits = written.base_bits_per_weight, written.bits_per_weight
    base = _record(written.base, written, "Q4_0", base_bits, f"the draft inside '{NESTED}'", report)
    nested_note = f"refines '{BASE}' ({kind} residual): {both_bits:.2f} bits a weight for draft and target together"
    nested = _record(written.residual, written, kind, both_bits, nested_note, report)
    matrix = None if manifest.imatrix is None else manifest.imatrix.sha256
    for name, record in ((BASE, base), (NESTED, nested)):
        manifest = manifest.with_variant(name, replace(record, recipe_sha256=recipe, imatrix_sha256=matrix))
    return home.commit(manifest)


def _record(path: Path, written: NestedFiles, kind: str, bits: float, note: str, report: Progress) -> VariantRecord:
    sha256 = written.base_sha256 if path == written.base else sha256_of(path, partial(report, f"hashing {path.name}"))
    remember_proof(path.parent, path, sha256)
    counts = read_card(path).weight_type_counts
    if path == written.residual:
        counts = {f"Q4_0 + {kind}": written.n_nested}
    return VariantRecord(
        file=path.name,
        n_bytes=path.stat().st_size,
        sha256=sha256,
        bits_per_weight=round(bits, 4),
        weight_types=counts,
        main_type="Q4_0",
        n_fallback_tensors=0,
        n_fallback_bytes=0,
        fallback=None,
        engine=engine_version(),
        created=now_utc(),
        notes=(note,),
    )


def _importances(folder: Path, manifest: Manifest, source: Path) -> dict[str, NDArray[np.float32]]:
    if manifest.imatrix is None or not (folder / manifest.imatrix.file).is_file():
        return {}
    found, _ = usable_importances(read_imatrix(folder / manifest.imatrix.file), read_card(source).tensors)
    return found


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
