"""A source -> a family: joins siblings to a family of the same source, or replaces another family at once.

Takes a plan, gives a Family. A stopped run goes on where it stopped. A new family is written beside the old one's files
in the same folder, so on the same file system; its manifest then takes the old one's place in one step.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

from ...errors import FamilyError
from ..checkpoint.source import DEMO, Source, demo_file, open_source
from ..family.family import Family, family_folder, sha256_of
from ..family.manifest import MANIFEST_NAME, Manifest, SourceRecord, now_utc, program_version
from ..family.ownership import FamilyFolder, require_place
from ..format.atomic import only_writer
from .siblings import ConvertOptions, ConvertPlan, Progress, make_siblings, plan_conversion

__all__ = [
    "DEMO",
    "ConvertOptions",
    "ConvertPlan",
    "Progress",
    "convert",
    "demo_file",
    "ensure_family",
    "open_source",
    "plan_conversion",
]


def convert(plan: ConvertPlan, options: ConvertOptions | None = None, progress: Progress | None = None) -> Family:
    """Carries the plan out. Finished siblings of the same source are kept; `force` makes everything anew.

    A family of another source is replaced only with `force`, and stays whole until the new one is. Two processes that
    convert into one family take turns. Raises FamilyError, DiskFullError, QuantizeError, CheckpointError.
    """
    options = options or ConvertOptions()
    report = progress or _silent
    folder = family_folder(plan.name)
    with only_writer(folder.with_name(f".lock-{plan.name}"), lambda: report("waiting for another conversion", 0, 0)):
        _recover(folder)
        require_place(folder, plan.source.places)
        home = FamilyFolder(folder)
        try:
            record = _source_record(plan.source, report)
            make_siblings(plan, home, _start(home, plan, record, options), options, report)
        finally:
            home.close()
    return Family.open(folder)


def _start(home: FamilyFolder, plan: ConvertPlan, record: SourceRecord, options: ConvertOptions) -> Manifest:
    """What this run builds on: the manifest that is there, or a new one. Raises FamilyError for another source."""
    old = home.manifest
    if old is None or not old.variants or options.force:
        return _new_manifest(plan, record)
    if old.source.sha256 != record.sha256:
        raise FamilyError(
            f"family '{plan.name}' was made from another source ({old.source.location}); "
            "choose another --name, or replace it with --force"
        )
    return old


def ensure_family(name: str, progress: Progress | None = None) -> Family:
    """Opens a family; the demo is made at its first use. Raises FamilyError."""
    if name == DEMO and not (family_folder(DEMO) / MANIFEST_NAME).is_file():
        return convert(plan_conversion(open_source(DEMO), DEMO), progress=progress)
    return Family.open(name)


def _source_record(source: Source, report: Progress) -> SourceRecord:
    hashes = [sha256_of(path, partial(report, f"hashing {path.name}")) for path in source.files]
    combined = hashlib.sha256("".join(hashes).encode()).hexdigest()
    return SourceRecord(
        kind=source.kind,
        location=source.location,
        sha256=hashes[0] if len(hashes) == 1 else combined,
        n_bytes=sum(path.stat().st_size for path in source.files),
        files=tuple(path.name for path in source.files),
        revision=source.revision,
    )


def _new_manifest(plan: ConvertPlan, record: SourceRecord) -> Manifest:
    source = plan.source
    return Manifest(
        name=plan.name,
        architecture=source.architecture,
        n_parameters=source.n_parameters,
        source=record,
        tokenizer_sha256="" if source.card is None else source.card.vocabulary_sha256,
        program=program_version(),
        created=now_utc(),
        notes=source.notes,
    )


def _recover(folder: Path) -> None:
    """Earlier versions swapped two folders: a kill between their renames left the family under another name."""
    retired = folder.with_name(f".old-{folder.name}")
    if (retired / MANIFEST_NAME).is_file() and not os.path.lexists(folder):
        retired.rename(folder)


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
