"""Files appear whole or not at all, one writer a folder, and never on a disk that is too small.

Takes paths, gives context managers. A target is written under a hidden temporary name beside it, fsynced, then
renamed; on any way out but success the temporary file is removed. Knows nothing of what is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...errors import DiskFullError, FileError
from ...units import format_bytes

FULL_DISK_ERRORS = frozenset(
    number for name in ("ENOSPC", "EDQUOT", "EFBIG") if (number := getattr(errno, name, None)) is not None
)
"""errno values that mean "no room": full disk, quota, file size limit (Windows lacks EDQUOT)."""

_PARTIAL_SUFFIX = ".partial"
_SPARE_BYTES = 16 << 20  # manifests, headers and rounding


@contextlib.contextmanager
def written_whole(target: Path, *, in_process: bool = False) -> Iterator[Path]:
    """Yields a temporary path in `target`'s folder; when the block ends well it becomes `target`, else it is removed.

    in_process promises that only this process writes to the path. Then, where Linux can, the file has no name until it
    is whole, and even a killed process leaves nothing. Raises DiskFullError when the disk fills up, FileError when
    the folder cannot be written.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}{_PARTIAL_SUFFIX}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _nameless_file(target.parent) if in_process else None
        if descriptor is None:
            yield partial
            _sync(partial)
        else:
            with os.fdopen(descriptor, "r+b"):
                nameless = Path(f"/proc/self/fd/{descriptor}")
                yield nameless
                os.fsync(descriptor)
                partial.unlink(missing_ok=True)  # of a killed process that had this number
                _give_name(descriptor, partial)
        partial.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _explained(error, target) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text_whole(target: Path, text: str) -> None:
    """Replaces a small text file at once."""
    with written_whole(target, in_process=True) as partial:
        partial.write_text(text, encoding="utf-8")


def partial_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Matches the temporary names under which these files are written, whichever process did it."""
    return re.compile(rf"\.({'|'.join(map(re.escape, names))})\.[0-9]+{re.escape(_PARTIAL_SUFFIX)}")


def require_space(folder: Path, n_bytes: int) -> None:
    """Raises DiskFullError unless `n_bytes` and a little more fit where `folder` is or will be."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
    n_free = shutil.disk_usage(existing).free
    if n_free < n_bytes + _SPARE_BYTES:
        raise DiskFullError(
            f"{existing} has {format_bytes(n_free)} free and {format_bytes(n_bytes)} are needed; "
            "free some space, or set EDGE_SPECQUANT_HOME to a folder on a larger disk"
        )


@contextlib.contextmanager
def only_writer(lock: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock file. A second process waits (`on_wait` is called once) until the first is done or dead.

    The lock belongs to the open file, so the system drops it with the process: nothing stale survives a kill. The file
    itself stays, because removing it would let two processes lock two different files of one name.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+b")
    except OSError as error:
        raise _explained(error, lock) from error
    with file:
        waited = False
        while not _try_lock(file.fileno()):
            if not waited and on_wait is not None:
                on_wait()
            waited = True
            time.sleep(0.1)
        try:
            yield
        finally:
            _unlock(file.fileno())


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: one user, one program, go on
            return True
        return True

    def _unlock(descriptor: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _nameless_file(folder: Path) -> int | None:
    """A descriptor of a file without a name, or None where the system or the file system has no such thing."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, flag | os.O_RDWR, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def _give_name(descriptor: int, path: Path) -> None:
    """linkat(2) through /proc, as open(2) describes it; without the folder's descriptor Python would call link(2)."""
    descriptors = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        os.link(str(descriptor), path, src_dir_fd=descriptors, follow_symlinks=True)
    finally:
        os.close(descriptors)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable; Windows has no such call and needs none."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems refuse to sync a folder; the file itself is safe
        return
    finally:
        os.close(descriptor)


def _explained(error: OSError, target: Path) -> FileError:
    if error.errno in FULL_DISK_ERRORS:
        return DiskFullError(f"writing {target} failed: {error.strerror}; free some space, then run the command again")
    return FileError(f"writing {target} failed: {error.strerror or error}")
