"""manifest.json: what a family is made of, with the hashes that prove it.

Takes and gives frozen records; reads and writes one JSON file. Knows nothing of how siblings are made or loaded.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import FamilyError
from ..format.atomic import write_text_whole

MANIFEST_NAME = "manifest.json"
PROOF_NAME = ".proof.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Where the weights came from. `kind` is demo, gguf, folder or hub; `sha256` covers every file, in order."""

    kind: str
    location: str
    sha256: str
    n_bytes: int
    files: tuple[str, ...]
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class QualityRecord:
    """Measured against the reference sibling on held-out text of `n_tokens` tokens."""

    reference: str
    n_tokens: int
    perplexity: float
    mean_kld: float | None
    top1_agreement: float | None


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """One sibling: a file name within the family folder, its fingerprint and its recipe."""

    file: str
    n_bytes: int
    sha256: str
    bits_per_weight: float
    weight_types: dict[str, int]
    main_type: str
    n_fallback_tensors: int
    n_fallback_bytes: int
    fallback: str | None
    engine: str
    created: str
    recipe_sha256: str = ""
    imatrix_sha256: str | None = None
    notes: tuple[str, ...] = ()
    quality: QualityRecord | None = None


@dataclass(frozen=True, slots=True)
class ImatrixRecord:
    """The importance matrix beside the siblings: collected here (`origin` names the text) or brought along."""

    file: str
    sha256: str
    origin: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One family. `tokenizer_sha256` is the vocabulary fingerprint that every sibling must have.

    scraps: files of ours that make no part of it, announced before they were written or not yet deleted.
    """

    name: str
    architecture: str
    n_parameters: int
    source: SourceRecord
    tokenizer_sha256: str
    program: str
    created: str
    variants: dict[str, VariantRecord] = field(default_factory=dict)
    imatrix: ImatrixRecord | None = None
    notes: tuple[str, ...] = ()
    scraps: tuple[str, ...] = ()

    def with_variant(self, variant: str, record: VariantRecord) -> Manifest:
        return replace(self, variants={**self.variants, variant: record})


def read_manifest(folder: Path) -> Manifest:
    """Raises FamilyError when the folder has no manifest or one that cannot be understood."""
    path = folder / MANIFEST_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != _FORMAT:
            raise FamilyError(f"{path} has format {document.get('format')!r}; this version reads format {_FORMAT}")
        return _manifest(document)
    except FileNotFoundError:
        raise FamilyError(f"{folder} is not a family: it has no {MANIFEST_NAME}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FamilyError(
            f"{path} is damaged ({error}); move the folder away, then convert the checkpoint again"
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest at once."""
    document = {"format": _FORMAT, **asdict(manifest)}
    write_text_whole(folder / MANIFEST_NAME, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def now_utc() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def program_version() -> str:
    return f"edge-specquant {__version__}"


def engine_version() -> str:
    """The installed engine's version, without loading it."""
    try:
        return f"llama-cpp-python {metadata.version('llama-cpp-python')}"
    except metadata.PackageNotFoundError:
        return "llama-cpp-python (unknown version)"


def _manifest(document: dict[str, Any]) -> Manifest:
    source = dict(document["source"])
    source["files"] = tuple(source["files"])
    variants = {str(name): _variant(dict(record)) for name, record in document["variants"].items()}
    imatrix = document.get("imatrix")
    if imatrix is not None:
        imatrix = ImatrixRecord(**{**imatrix, "file": _plain_name(imatrix["file"])})
    known = {entry.name for entry in fields(Manifest)}
    plain = {key: value for key, value in document.items() if key in known}
    return Manifest(
        **{
            **plain,
            "source": SourceRecord(**source),
            "variants": variants,
            "imatrix": imatrix,
            "notes": tuple(document.get("notes", ())),
            "scraps": tuple(_plain_name(name) for name in document.get("scraps", ())),
        }
    )


def _variant(record: dict[str, Any]) -> VariantRecord:
    quality = record.pop("quality", None)
    record["file"] = _plain_name(record["file"])
    record["notes"] = tuple(record.get("notes", ()))
    known = {entry.name for entry in fields(VariantRecord)}
    plain = {key: value for key, value in record.items() if key in known}
    return VariantRecord(**plain, quality=None if quality is None else QualityRecord(**quality))


def _plain_name(file: Any) -> str:
    """A file name, never a path: a manifest from elsewhere must not point outside its folder."""
    if not isinstance(file, str) or file in ("", ".", "..") or "/" in file or "\\" in file:
        raise ValueError(f"{file!r} is not a plain file name")
    return file
