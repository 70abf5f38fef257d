"""A source -> a family: joins siblings to a family of the same source, or swaps a new family in whole.

Takes a plan, gives a Family. A stopped run goes on where it stopped; another source is built in a staging folder, so
the old family stays whole until the new one is.
"""

from __future__ import annotations

import hashlib
import shutil
from functools import partial
from pathlib import Path

from ...errors import FamilyError
from ..checkpoint.source import DEMO, Source, demo_file, open_source
from ..family.family import Family, family_folder, sha256_of
from ..family.manifest import MANIFEST_NAME, Manifest, SourceRecord, now_utc, program_version, read_manifest
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
    _refuse_own_source(plan, folder)
    with only_writer(folder.with_name(f".lock-{plan.name}"), lambda: report("waiting for another conversion", 0, 0)):
        _recover(folder)
        record = _source_record(plan.source, report)
        old = read_manifest(folder) if (folder / MANIFEST_NAME).is_file() and not options.force else None
        if old is not None and old.source.sha256 != record.sha256:
            raise FamilyError(
                f"family '{plan.name}' was made from another source ({old.source.location}); "
                "choose another --name, or replace it with --force"
            )
        work = folder if old is not None or not folder.exists() else _fresh_staging(folder)
        make_siblings(plan, work, old or _new_manifest(plan, record), options, report)
        if work != folder:
            _swap(work, folder)
    return Family.open(folder)


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


# -- folders ------------------------------------------------------------------------------------------------------


def _fresh_staging(folder: Path) -> Path:
    staging = folder.with_name(f".new-{folder.name}")
    shutil.rmtree(staging, ignore_errors=True)
    return staging


def _retired(folder: Path) -> Path:
    return folder.with_name(f".old-{folder.name}")


def _swap(staging: Path, folder: Path) -> None:
    """Two renames; a process killed between them is mended by `_recover` at the next run."""
    folder.rename(_retired(folder))
    staging.rename(folder)
    shutil.rmtree(_retired(folder), ignore_errors=True)


def _recover(folder: Path) -> None:
    retired = _retired(folder)
    if retired.exists() and not folder.exists():
        retired.rename(folder)
    shutil.rmtree(retired, ignore_errors=True)


def _refuse_own_source(plan: ConvertPlan, folder: Path) -> None:
    for path in plan.source.files:
        if path.resolve().parent == folder.resolve():
            raise FamilyError(
                f"{path} is a sibling of family '{plan.name}' itself: converting it into its own family would "
                "overwrite the source; choose another --name"
            )


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
