"""Packs everything an installation needs into one archive, for machines without a network.

Takes the repository, a built engine wheel, extras, and a family's folder; gives a .tar with wheels, family, checksums,
a bill of materials, and `bundle_install.py` as its installer. The machine it is for must be like this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import __version__
from ...errors import SetupError
from ..commands import run_logged, say
from ..engine.flags import EngineFlags, needed_cpu_flags
from ..engine.wheel import pip_environment
from ..prerequisites import check_disk
from . import bundle_install
from .sbom import bill_of_materials, components_of_wheels

_PARTS = ("edge_specquant", "models", "pyproject.toml", "README.md", "LICENSE")
_NOT_SOURCE = ("__pycache__", "*.gguf", "*.safetensors")
_MANIFEST = "manifest.json"
_HASH_CHUNK_BYTES = 1 << 22
_WHEELS_BYTES = 1_000_000_000
_ASK_PYTHON = (
    "import json, platform, sys, sysconfig; print(json.dumps({'python': '%d.%d' % sys.version_info[:2],"
    " 'platform': sysconfig.get_platform(), 'libc': platform.libc_ver()}))"
)


@dataclass(frozen=True, slots=True)
class BundleOrder:
    """What goes into a bundle. `python` has pip, and its version is the one the bundle will be for.

    links: folder of wheels to use instead of the package index, or None.
    """

    root: Path
    python: Path
    engine_wheel: Path
    engine_flags: EngineFlags
    extras: tuple[str, ...]
    family: Path | None
    target: Path
    links: Path | None = None


def make_bundle(order: BundleOrder, log: Path) -> Path:
    """Writes the archive whole or not at all. Raises SetupError."""
    if order.family is not None and not (order.family / _MANIFEST).is_file():
        raise SetupError(f"{order.family} is not a family: it has no {_MANIFEST}; make it with edge-specquant convert")
    family_bytes = 0 if order.family is None else sum(file.stat().st_size for file in family_files(order.family))
    order.target.parent.mkdir(parents=True, exist_ok=True)
    say(f"disk: {check_disk(order.target.parent, _WHEELS_BYTES + 2 * family_bytes, 'packing the bundle')}")
    with tempfile.TemporaryDirectory(prefix="bundle-", dir=order.target.parent) as scratch:
        folder = Path(scratch) / order.target.name.removesuffix(".tar")
        _collect_wheels(order, Path(scratch), folder / "wheels", log)
        if order.family is not None:
            _copy_family(order.family, folder / "family" / order.family.name)
        shutil.copyfile(bundle_install.__file__, folder / "install.py")
        components = components_of_wheels(folder / "wheels")
        _write_json(folder / "sbom.cdx.json", bill_of_materials("edge-specquant", __version__, components))
        _write_json(folder / "bundle.json", _describe(order))
        (folder / bundle_install.SUMS).write_text(checksums(folder), encoding="utf-8")
        partial = Path(scratch) / "bundle.tar"
        _pack(folder, partial)
        partial.replace(order.target)
    return order.target


def family_files(family: Path) -> list[Path]:
    """What of a family travels: all but hidden files, which hold what was proven on this machine only."""
    return sorted(file for file in family.iterdir() if file.is_file() and not file.name.startswith("."))


def checksums(folder: Path) -> str:
    """SHA-256 of every file below, in the format of sha256sum."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def _collect_wheels(order: BundleOrder, scratch: Path, wheels: Path, log: Path) -> None:
    """The project from a clean copy (a stale build folder must not get in), the engine as it was built, the rest."""
    source = scratch / "source"
    source.mkdir()
    for name in _PARTS:
        part = order.root / name
        if part.is_dir():
            shutil.copytree(part, source / name, ignore=shutil.ignore_patterns(*_NOT_SOURCE))
        elif part.is_file():
            shutil.copyfile(part, source / name)
    compiling = source / "edge_specquant" / "native" / "kernel" / "compile.py"
    if compiling.is_file():  # machines without a network often have no compiler either
        run_logged([str(order.python), str(compiling)], log, doing="compiling the kernel")
    wheels.mkdir(parents=True)
    shutil.copyfile(order.engine_wheel, wheels / order.engine_wheel.name)
    wanted = f".[{','.join(order.extras)}]" if order.extras else "."
    command: Sequence[str] = (
        *(str(order.python), "-m", "pip", "wheel", "--prefer-binary", "--wheel-dir", str(wheels)),
        # The engine may only come from here: one from the index is built for another machine.
        *("--find-links", str(wheels), "--only-binary", "llama-cpp-python"),
        *(() if order.links is None else ("--no-index", "--no-build-isolation", "--find-links", str(order.links))),
        wanted,
    )
    run_logged(command, log, doing="collecting the wheels", env=pip_environment(), cwd=source)
    ours = _sha256(wheels / order.engine_wheel.name)
    if ours != _sha256(order.engine_wheel) or len(list(wheels.glob("llama_cpp_python-*.whl"))) != 1:
        raise SetupError(f"the engine in the bundle is not {order.engine_wheel.name} alone; see {log}")


def _copy_family(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in family_files(source):
        shutil.copyfile(file, target / file.name)


def _describe(order: BundleOrder) -> dict[str, object]:
    """bundle.json: what the installer compares with the machine it finds itself on."""
    asked = subprocess.run([str(order.python), "-c", _ASK_PYTHON], capture_output=True, check=True, text=True)
    return {
        "format": bundle_install.FORMAT,
        "version": __version__,
        **json.loads(asked.stdout),
        "cpu_flags": sorted(needed_cpu_flags(order.engine_flags)),
        "engine": {"wheel": order.engine_wheel.name, "cmake_args": order.engine_flags.text},
        "extras": list(order.extras),
        "family": None if order.family is None else order.family.name,
    }


def _pack(folder: Path, archive: Path) -> None:
    """No compression: wheels and weights are dense already. Owners are left out."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with archive.open("wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.add(folder, arcname=folder.name, filter=plain)
        file.flush()
        os.fsync(file.fileno())


def _write_json(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
