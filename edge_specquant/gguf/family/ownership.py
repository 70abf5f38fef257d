"""Which files of a family's folder are this program's: those its manifest names, and no others.

Takes a folder whose lock is held. A file is announced in the manifest before it is written, under a name nobody has,
and the manifest alone decides which files make the family: a kill at any step leaves the old family or the new one,
and files whose owner is known. Only regular files with such a name are ever deleted. Knows nothing of what they hold.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path

from ...errors import FamilyError
from ..format.atomic import partial_pattern
from .manifest import MANIFEST_NAME, PROOF_NAME, Manifest, read_manifest, write_manifest


class FamilyFolder:
    """A family's folder, opened for writing. `manifest` is what is on disk, None in a new or empty folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.manifest = read_manifest(folder) if (folder / MANIFEST_NAME).is_file() else None
        self._in_use: set[str] = set()
        if self.manifest is not None:
            self._sweep(self.manifest)

    def begin(self, manifest: Manifest) -> None:
        """The first thing written into a new folder is its manifest; one without a finished sibling is replaced."""
        if self.manifest is None or not self.manifest.variants:
            self._write(replace(manifest, scraps=() if self.manifest is None else self.manifest.scraps))

    def new_file(self, wanted: str) -> Path:
        """A path that nothing has, announced as ours: `wanted`, or `wanted` with a number where it is taken."""
        assert self.manifest is not None, "begin comes first"
        stem = wanted.removesuffix(".gguf")
        names = (wanted if number == 1 else f"{stem}-{number}.gguf" for number in count(1))
        name = next(name for name in names if not os.path.lexists(self.path / name))
        self._in_use.add(name)
        self._write(replace(self.manifest, scraps=tuple(sorted({*self.manifest.scraps, name}))))
        return self.path / name

    def commit(self, manifest: Manifest) -> Manifest:
        """The one step that makes `manifest` the family; files of ours that it does not name are deleted after it."""
        assert self.manifest is not None, "begin comes first"
        kept = files_of(manifest)
        self._in_use -= kept
        ours = {*files_of(self.manifest), *self.manifest.scraps}
        committed = replace(manifest, scraps=tuple(sorted(ours - kept)))
        self._write(committed)
        self._sweep(committed)
        return self.manifest

    def discard(self, path: Path) -> None:
        """Deletes an announced file that was only needed for a while."""
        self._in_use.discard(path.name)
        if self.manifest is not None:
            self._sweep(self.manifest)

    def close(self) -> None:
        """Takes a folder in which nothing was finished away again."""
        if self.manifest is not None and not self.manifest.variants:
            delete_owned(self.path, self.manifest)

    def _write(self, manifest: Manifest) -> None:
        write_manifest(self.path, manifest)
        self.manifest = manifest

    def _sweep(self, manifest: Manifest) -> None:
        """Deletes scraps that nobody uses any more, and what killed writers of our files left."""
        scraps = set(manifest.scraps) - files_of(manifest) - self._in_use
        for name in scraps:
            _delete_file(self.path / name)
        if not self._in_use:
            _delete_partials(self.path, {*files_of(manifest), *manifest.scraps})
        remaining = tuple(name for name in manifest.scraps if name in self._in_use or _is_file(self.path / name))
        if remaining != manifest.scraps:
            self._write(replace(manifest, scraps=remaining))


def files_of(manifest: Manifest) -> set[str]:
    """Names of the files that make the family."""
    files = {record.file for record in manifest.variants.values()}
    return files if manifest.imatrix is None else {*files, manifest.imatrix.file}


def delete_owned(folder: Path, manifest: Manifest) -> tuple[int, list[str]]:
    """Deletes what the manifest says is ours, itself last, and the folder when nothing else is in it.

    Returns the bytes freed and the names of what stays. Raises FamilyError for a link: neither it nor what it points
    to was made here.
    """
    require_no_link(folder)
    ours = {*files_of(manifest), *manifest.scraps}
    n_bytes = sum(_delete_file(folder / name) for name in sorted(ours))
    _delete_partials(folder, ours)
    n_bytes += _delete_file(folder / PROOF_NAME) + _delete_file(folder / MANIFEST_NAME)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return n_bytes, _names(folder)


def require_place(folder: Path, sources: Iterable[Path]) -> None:
    """Raises FamilyError unless a family can be written here without touching anything that is not ours.

    sources: what the family is made from; none of it may lie at or below the folder, through whatever links.
    """
    require_no_link(folder)
    if folder.exists() and not folder.is_dir():
        raise FamilyError(
            f"{folder} is a file where a family's folder should be; move it away, or choose another --name"
        )
    for path in sources:
        if _is_within(path, folder):
            raise FamilyError(
                f"{path} lies in the folder of family '{folder.name}' itself, and a family never takes itself as its "
                "source; choose another --name"
            )
    strangers = [] if (folder / MANIFEST_NAME).is_file() else _strangers(folder)
    if strangers:
        shown = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        raise FamilyError(
            f"{folder} holds things this program did not write ({shown}) and no {MANIFEST_NAME}; "
            "move them away, or choose another --name"
        )


def require_no_link(folder: Path) -> None:
    """Raises FamilyError for a link (or a Windows junction) in place of the folder, dangling ones too."""
    is_moved = folder.exists() and folder.resolve() != folder.parent.resolve() / folder.name
    if folder.is_symlink() or (is_moved and os.name == "nt"):
        raise FamilyError(
            f"{folder} is a link to {os.path.realpath(folder)}, which this program did not make and leaves alone; "
            "remove the link, or set EDGE_SPECQUANT_HOME to a folder on that disk"
        )


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a path is the folder or below it, as written or with its links followed."""
    places = [path.absolute(), path.resolve()]
    above = {parent for place in places for parent in (place, *place.parents)}
    if {folder.absolute(), folder.resolve()} & above:
        return True
    return folder.is_dir() and any(parent.is_dir() and parent.samefile(folder) for parent in above)


def _strangers(folder: Path) -> list[str]:
    """What lies in a folder without a manifest, but for what a writer killed at its first step left."""
    first_step = partial_pattern([MANIFEST_NAME])
    return [name for name in _names(folder) if not first_step.fullmatch(name)]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _delete_file(path: Path) -> int:
    """Bytes freed; 0 where there is no regular file, or the system does not let it go now."""
    if not _is_file(path):
        return 0
    with contextlib.suppress(OSError):
        n_bytes = path.lstat().st_size
        path.unlink()
        return n_bytes
    return 0


def _delete_partials(folder: Path, names: Iterable[str]) -> None:
    pattern = partial_pattern([MANIFEST_NAME, PROOF_NAME, *names])
    for name in _names(folder):
        if pattern.fullmatch(name):
            _delete_file(folder / name)
