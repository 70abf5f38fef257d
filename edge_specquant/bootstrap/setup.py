"""The steps of setup in order: check, `.venv`, engine, packages. A second run finds them done and skips them.

Takes the repository's root and the extras wanted, gives the Python of a working `.venv`. Raises SetupError.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import SetupError
from .commands import run_logged, say
from .engine.facts import gather
from .engine.flags import choose
from .engine.wheel import EngineBuild, build_wheel, cached_wheel, describe_build, drop_wheel, pip_environment
from .places import setup_cache
from .prerequisites import check_disk, check_python

_STAMP = "edge-specquant-setup.json"
_PACKAGES_BYTES = 1_000_000_000
_LOAD_ENGINE = "import llama_cpp"
_OLDEST_PIP = 22  # older ones stumble over editable installs from pyproject.toml


@dataclass(frozen=True, slots=True)
class Stamp:
    """What `.venv` holds: the engine's digest, a hash of pyproject.toml, the extras; rpc and the user's own cmake_args
    are remembered for reruns.
    """

    engine: str
    project: str
    extras: tuple[str, ...]
    rpc: bool
    cmake_args: str = ""


def prepare(root: Path, extras: Iterable[str], *, rpc: bool = False, rebuild: bool = False) -> Path:
    """Makes or reuses `.venv` with the engine and these extras; returns its Python."""
    folder = root / ".venv"
    old = _read_stamp(folder)
    rpc = rpc or (old is not None and old.rpc)
    facts = gather()
    extra = wished_cmake_args(old.cmake_args if old else "")
    flags = choose(facts, rpc=rpc, extra=extra)
    build = describe_build(engine_version(root), flags, facts)
    all_extras = tuple(sorted({*extras, *(old.extras if old else ())}))
    wanted = Stamp(build.digest, _project_hash(root), all_extras, rpc, extra)
    python = venv_python(folder)
    if old == wanted and not rebuild and _works(python, _LOAD_ENGINE):
        say(f"{folder} is ready: nothing to do")
        return python
    say(f"1/4 checking: {check_python()}, {check_disk(folder, _PACKAGES_BYTES, 'installing the packages')}")
    cache = setup_cache()
    _make_venv(folder, python, cache)
    _write_stamp(folder, None)
    for reason in flags.reasons:
        say(f"    {reason}")
    if rebuild:
        drop_wheel(build, cache)
    _install(root, python, cache, build, replace(wanted, engine=old.engine if old and not rebuild else ""))
    _write_stamp(folder, wanted)
    return python


def wished_cmake_args(remembered: str) -> str:
    """The caller's CMAKE_ARGS; where the variable is not set, those of the last set-up (set but empty forgets them)."""
    return os.environ.get("CMAKE_ARGS", remembered).strip()


def engine_version(root: Path) -> str:
    """The pinned llama-cpp-python of pyproject.toml, the one place that names it."""
    pin = re.search(r'"llama-cpp-python==([^"\s;]+)"', _project(root).read_text(encoding="utf-8"))
    if pin is None:
        raise SetupError(f"{_project(root)} does not pin llama-cpp-python==VERSION")
    return pin[1]


def venv_python(folder: Path) -> Path:
    """Where a virtual environment keeps its Python."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _make_venv(folder: Path, python: Path, cache: Path) -> None:
    if _works(python, "import sys, pip; sys.exit(sys.version_info < (3, 10))"):
        say(f"2/4 {folder}: reused")
    else:
        say(f"2/4 {folder}: made with {sys.executable}")
        try:
            venv.create(folder, clear=True, with_pip=True, symlinks=os.name != "nt")
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(f"{folder} could not be made ({error}); remove it and try again") from error
    if not _works(python, f"import sys, pip; sys.exit(int(pip.__version__.split('.')[0]) < {_OLDEST_PIP})"):
        _pip(python, cache, "upgrading pip", "install", "--upgrade", "pip")


def _install(root: Path, python: Path, cache: Path, build: EngineBuild, wanted: Stamp) -> None:
    """Engine first, alone, so that pip's resolver finds the pinned version there; then the project and its extras."""
    wheel = _engine_wheel(build, cache, python)
    if wanted.engine != build.digest or not _works(python, _LOAD_ENGINE):
        _pip(python, cache, "installing the engine", "install", "--force-reinstall", "--no-deps", str(wheel))
    say(f"4/4 packages: edge-specquant[{','.join(wanted.extras)}]")
    # A relative path, because '[' in the folder's own name would be read as the start of the extras.
    _pip(python, cache, "installing the packages", "install", "-e", f".[{','.join(wanted.extras)}]", cwd=root)
    if _works(python, _LOAD_ENGINE):
        return
    say("    the installed engine does not load: building it again")
    drop_wheel(build, cache)
    again = build_wheel(build, cache, python)
    _pip(python, cache, "installing the engine", "install", "--force-reinstall", "--no-deps", str(again))
    if not _works(python, _LOAD_ENGINE):
        drop_wheel(build, cache)
        raise SetupError(f"the engine was built but does not load; run '{python} -c \"import llama_cpp\"' to see why")


def _engine_wheel(build: EngineBuild, cache: Path, python: Path) -> Path:
    wheel = cached_wheel(build, cache)
    if wheel is not None:
        say(f"3/4 engine: llama-cpp-python {build.version}, built before ({wheel.parent})")
        return wheel
    say(f"3/4 engine: CMAKE_ARGS={build.flags.text}")
    return build_wheel(build, cache, python)


def _pip(python: Path, cache: Path, doing: str, *arguments: str, cwd: Path | None = None) -> None:
    log = cache / "logs" / f"{doing.replace(' ', '-')}.log"
    run_logged([str(python), "-m", "pip", *arguments], log, doing=doing, env=pip_environment(), cwd=cwd)


def _works(python: Path, code: str) -> bool:
    if not python.exists():
        return False
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True, timeout=120, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _project(root: Path) -> Path:
    return root / "pyproject.toml"


def _project_hash(root: Path) -> str:
    # The folder is part of it: an editable install points to it, and a moved clone must be installed again.
    return hashlib.sha256(_project(root).read_bytes() + os.fsencode(root)).hexdigest()[:16]


def _read_stamp(folder: Path) -> Stamp | None:
    try:
        fields = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        said = str(fields.get("cmake_args", ""))
        return Stamp(str(fields["engine"]), str(fields["project"]), tuple(fields["extras"]), bool(fields["rpc"]), said)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_stamp(folder: Path, stamp: Stamp | None) -> None:
    """None takes the stamp away: what follows changes `.venv` and may be interrupted."""
    path = folder / _STAMP
    if stamp is None:
        path.unlink(missing_ok=True)
        return
    partial = path.with_suffix(".part")
    fields = {"engine": stamp.engine, "project": stamp.project, "extras": stamp.extras, "rpc": stamp.rpc}
    fields["cmake_args"] = stamp.cmake_args
    partial.write_text(json.dumps(fields), encoding="utf-8")
    partial.replace(path)
