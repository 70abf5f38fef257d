"""Adds `skip` to a family: a copy of its 4-bit draft without some layers, recorded, hashed and measured.

Takes a family and layer numbers, however they were chosen (bench/papers/draft_layers.py searches them by goodput).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...errors import FamilyError, UsageError
from ..family.family import Family, remember_proof, sha256_of
from ..family.manifest import engine_version, now_utc
from ..family.ownership import FamilyFolder, require_no_link
from ..format.atomic import only_writer
from ..format.header import read_card
from ..quantize.quantize import prune_gguf
from .quality import measure_family

SKIP = "skip"

Progress = Callable[[str, int, int], None]


def add_skipped(
    family: Family,
    draft: str,
    layers: Sequence[int],
    *,
    measure: bool = False,
    n_threads: int = 0,
    progress: Progress,
) -> Family:
    """The family with `skip`, made of `draft`, in place of an earlier one. Raises UsageError, QuantizeError."""
    source = family.path(draft)
    card = read_card(source)
    dropped = sorted(set(layers))
    if not dropped or not all(0 <= layer < card.n_layer for layer in dropped) or len(dropped) >= card.n_layer:
        named = ", ".join(map(str, layers)) or "none"
        raise UsageError(f"layers {named} cannot be dropped: {draft} has 0 to {card.n_layer - 1}, and some must stay")
    folder = family.folder
    lock = folder.with_name(f".lock-{family.name}")
    with only_writer(lock, lambda: progress("waiting for another conversion", 0, 0)):
        require_no_link(folder)
        home = FamilyFolder(folder)
        manifest = home.manifest
        if manifest is None:
            raise FamilyError(f"{folder} is not a family: it has no manifest; make one: edge-specquant convert SOURCE")
        target = home.new_file(f"{manifest.name}-{SKIP}.gguf")
        progress(f"writing {SKIP}", 0, 0)
        prune_gguf(source, target, dropped)
        made = read_card(target)
        sha256 = sha256_of(target, partial(progress, f"hashing {SKIP}"))
        remember_proof(folder, target, sha256)
        record = replace(
            manifest.variants[family.variant(draft).name],
            file=target.name,
            n_bytes=made.n_file_bytes,
            sha256=sha256,
            bits_per_weight=round(made.bits_per_weight, 4),
            weight_types=made.weight_type_counts,
            engine=engine_version(),
            created=now_utc(),
            recipe_sha256=f"{draft} without layers {','.join(map(str, dropped))}",
            notes=(f"'{draft}' without layers {', '.join(map(str, dropped))} of {card.n_layer}: a draft, no target",),
            quality=None,
        )
        manifest = home.commit(manifest.with_variant(SKIP, record))
        if measure:
            home.commit(measure_family(folder, manifest, n_threads, progress))
    return Family.open(folder)
