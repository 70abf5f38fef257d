"""A family: GGUF siblings of one checkpoint in one folder, with the proof that they belong together.

Takes a name (a folder of the families folder), a folder, or a single GGUF file; gives paths that were checked against
the manifest. The check is cheap when size and time stamp are those of the last full proof, else the file is hashed
again. Knows nothing of how siblings are made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ... import config
from ...errors import EdgeSpecQuantError, FamilyError, FileError, UsageError, VocabularyError
from ..format.atomic import write_text_whole
from ..format.header import ModelCard, read_card, require_same_vocabulary
from .manifest import MANIFEST_NAME, PROOF_NAME, ImatrixRecord, Manifest, QualityRecord, read_manifest
from .ownership import delete_owned

_HASH_CHUNK_BYTES = 1 << 22
_MAX_NAME_LENGTH = 100
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')
_ALIASES = {
    "fp16": "f16",
    "q8_0": "q8",
    "q6_k": "q6",
    "q5_k": "q5",
    "q4_k": "q4",
    "q4_k_m": "q4",
    "q4_k_s": "q4",
    "q3_k": "q3",
    "q2_k": "q2",
}

_REMEDY = "convert the checkpoint again with --force"

HashProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Variant:
    """One sibling as the manifest describes it; `Family.path` is the way to a checked file."""

    name: str
    path: Path
    n_bytes: int
    bits_per_weight: float
    weight_types: dict[str, int]
    main_type: str
    sha256: str | None
    quality: QualityRecord | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a full verification."""

    subject: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Family:
    """Siblings by variant name, in the order they were made. `manifest` is None for a single file."""

    name: str
    folder: Path
    variants: dict[str, Variant]
    manifest: Manifest | None

    @classmethod
    def open(cls, name_or_path: str | Path) -> Family:
        """Opens a family by name, by folder, or one GGUF file as a family of one.

        Raises FamilyError (naming the families there are), GGUFError for a file that is no model.
        """
        text = str(name_or_path)
        as_path = Path(text).expanduser()
        if as_path.suffix.lower() == ".gguf" and as_path.is_file():
            return _family_of_file(as_path)
        if (as_path / MANIFEST_NAME).is_file():
            return _family_of_folder(as_path)
        if not _NOT_IN_NAMES.search(text) and (family_folder(text) / MANIFEST_NAME).is_file():
            return _family_of_folder(family_folder(text))
        if as_path.suffix.lower() == ".gguf":
            raise FamilyError(f"{as_path} is {_what_is_at(as_path)}; give the path of a GGUF file, or a family's name")
        known = ", ".join(family_names()) or "none yet"
        raise FamilyError(f"there is no family '{text}' (families: {known}); make one: edge-specquant convert SOURCE")

    def variant(self, name: str) -> Variant:
        """Raises FamilyError naming the siblings there are."""
        wanted = name.lower()
        found = self.variants.get(wanted) or self.variants.get(_ALIASES.get(wanted, wanted))
        if found is None:
            raise FamilyError(
                f"family '{self.name}' has no '{name}'; it has {', '.join(self.variants)} "
                f"(add one with: edge-specquant convert --variants {wanted})"
            )
        return found

    def path(self, name: str) -> Path:
        """The file of one sibling, after the proof that it is the one of the manifest.

        Raises FamilyError or VocabularyError naming the first difference.
        """
        variant = self.variant(name)
        if self.manifest is not None and not _is_proven(self.folder, variant):
            _prove(self, variant)
        return variant.path

    def card(self, name: str) -> ModelCard:
        """The header of one sibling, after the same proof as `path`."""
        return read_card(self.path(name))

    def verify(self, progress: Callable[[str, int, int], None] | None = None) -> list[Finding]:
        """Hashes every file again, whatever its time stamp. `progress(variant, done_bytes, total_bytes)`."""
        findings = [_verify_one(self, variant, progress) for variant in self.variants.values()]
        matrix = None if self.manifest is None else self.manifest.imatrix
        return findings if matrix is None else [*findings, _verify_imatrix(self.folder, matrix)]


def family_folder(name: str) -> Path:
    """The folder of a family of this name, there or not. Raises UsageError for a name that is no folder name."""
    return config.families_dir() / check_name(name)


def check_name(name: str) -> str:
    """The name itself when it can be a folder's name everywhere. Raises UsageError."""
    if not name or len(name) > _MAX_NAME_LENGTH or name.strip(" .") != name or _NOT_IN_NAMES.search(name):
        raise UsageError(
            f"{name!r} cannot be a family's name: use letters, digits, - _ . and spaces inside, "
            f"at most {_MAX_NAME_LENGTH}, no slash and no dot in front"
        )
    return name


def family_names() -> list[str]:
    """Names of all families in the families folder, sorted."""
    root = config.families_dir()
    if not root.is_dir():
        return []
    return sorted(
        entry.name for entry in root.iterdir() if not entry.name.startswith(".") and (entry / MANIFEST_NAME).is_file()
    )


def remove_family(name: str) -> tuple[int, list[str]]:
    """Deletes a family's own files; returns the bytes freed and the names of what stays, because it is not ours.

    Raises FamilyError when there is none, or a link in its place.
    """
    folder = family_folder(name)
    if not (folder / MANIFEST_NAME).is_file():
        raise FamilyError(f"there is no family '{name}' (families: {', '.join(family_names()) or 'none yet'})")
    return delete_owned(folder, read_manifest(folder))


def sha256_of(path: Path, progress: HashProgress | None = None) -> str:
    """SHA-256 of one file, in chunks. Raises FamilyError when it cannot be read."""
    digest, done = hashlib.sha256(), 0
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    except OSError as error:
        raise FamilyError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


def remember_proof(folder: Path, path: Path, sha256: str) -> None:
    """Notes that this file, at this size and time stamp, has this hash. A read-only folder only costs a new hash."""
    stat = path.stat()
    proofs = {**_proofs(folder), path.name: [stat.st_size, stat.st_mtime_ns, sha256]}
    with contextlib.suppress(FileError):
        write_text_whole(folder / PROOF_NAME, json.dumps(proofs, indent=1))


def _family_of_folder(folder: Path) -> Family:
    manifest = read_manifest(folder)
    variants = {
        name: Variant(
            name=name,
            path=folder / record.file,
            n_bytes=record.n_bytes,
            bits_per_weight=record.bits_per_weight,
            weight_types=record.weight_types,
            main_type=record.main_type,
            sha256=record.sha256,
            quality=record.quality,
        )
        for name, record in manifest.variants.items()
    }
    if not variants:
        raise FamilyError(f"family '{manifest.name}' has no finished sibling; run edge-specquant convert again")
    return Family(manifest.name, folder, variants, manifest)


def _what_is_at(path: Path) -> str:
    if path.is_dir():
        return "a folder, no file"
    if path.is_symlink():
        return f"a link to {path.resolve()}, which is not there"
    return "not there" if path.parent.is_dir() else f"not there, nor is its folder {path.parent}"


def _family_of_file(path: Path) -> Family:
    card = read_card(path)
    weights = Counter[str]()
    for tensor in card.tensors:
        weights[tensor.weight_type.name] += tensor.n_weights
    main_type = weights.most_common(1)[0][0]
    name = _ALIASES.get(main_type.lower(), main_type.lower())
    variant = Variant(
        name, card.path, card.n_file_bytes, card.bits_per_weight, card.weight_type_counts, main_type, sha256=None
    )
    return Family(path.stem, path.parent, {name: variant}, None)


def _verify_one(family: Family, variant: Variant, progress: Callable[[str, int, int], None] | None) -> Finding:
    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(variant.name, done, total)

    try:
        if family.manifest is None:
            read_card(variant.path)
            return Finding(variant.name, True, f"{variant.path.name} is whole; without a manifest no more can be said")
        _prove(family, variant, report)
    except EdgeSpecQuantError as error:
        return Finding(variant.name, False, str(error))
    return Finding(variant.name, True, f"{variant.path.name} is whole and unchanged")


def _verify_imatrix(folder: Path, record: ImatrixRecord) -> Finding:
    path = folder / record.file
    if not path.is_file():
        return Finding("imatrix", False, f"{path} is missing; it is only needed to make further siblings")
    same = sha256_of(path) == record.sha256
    return Finding("imatrix", same, f"{path.name} is unchanged" if same else f"{path} was changed; {_REMEDY}")


def _prove(family: Family, variant: Variant, progress: HashProgress | None = None) -> None:
    """Existence, size, hash, vocabulary: the first difference is named."""
    assert family.manifest is not None
    if not variant.path.is_file():
        raise FamilyError(f"{variant.path} is missing; run edge-specquant convert again to make it")
    n_bytes = variant.path.stat().st_size
    if n_bytes != variant.n_bytes:
        raise FamilyError(f"{variant.path} is {n_bytes} bytes, the manifest says {variant.n_bytes}; {_REMEDY}")
    card = read_card(variant.path)
    if card.vocabulary_sha256 != family.manifest.tokenizer_sha256:
        _name_vocabulary_difference(family, variant, card)
        raise VocabularyError(f"{variant.path} has another vocabulary than the manifest says; {_REMEDY}")
    found = sha256_of(variant.path, progress)
    if found != variant.sha256:
        expected = (variant.sha256 or "")[:12]
        raise FamilyError(
            f"{variant.path} was changed: SHA-256 {found[:12]}…, the manifest says {expected}…; {_REMEDY}"
        )
    remember_proof(family.folder, variant.path, found)


def _name_vocabulary_difference(family: Family, variant: Variant, card: ModelCard) -> None:
    """Raises VocabularyError with the first differing token, if a sibling with the right vocabulary is at hand."""
    for sibling in family.variants.values():
        if sibling.name != variant.name and sibling.path.is_file():
            other = read_card(sibling.path)
            if family.manifest is not None and other.vocabulary_sha256 == family.manifest.tokenizer_sha256:
                require_same_vocabulary(other, card)


def _proofs(folder: Path) -> dict[str, list[int | str]]:
    try:
        document = json.loads((folder / PROOF_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _is_proven(folder: Path, variant: Variant) -> bool:
    try:
        stat = variant.path.stat()
    except OSError:
        return False
    known = _proofs(folder).get(variant.path.name)
    return known == [stat.st_size, stat.st_mtime_ns, variant.sha256]
