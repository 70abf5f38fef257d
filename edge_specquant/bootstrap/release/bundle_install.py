"""Installs a bundle that lies beside this file; opens no socket. In a bundle it is called `install.py`.

    python3 install.py [--into FOLDER] [--check] [--dry-run]

Standard library only, and nothing of this package: it runs before the package is there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

FORMAT = 1
SUMS = "SHA256SUMS"
_CHUNK_BYTES = 1 << 22
_FAMILIES = "from edge_specquant.config.paths import families_dir; print(families_dir())"


class ProblemError(Exception):
    """One sentence: what is wrong and what to try."""


def main(arguments: list[str], bundle: Path) -> int:
    """Returns the exit code: 0 done, 1 with a sentence."""
    parser = argparse.ArgumentParser(prog="install.py", description="Install this bundle without a network.")
    parser.add_argument("--into", type=Path, default=Path("~/edge-specquant"), help="folder [~/edge-specquant]")
    parser.add_argument("--check", action="store_true", help="only compare machine and checksums")
    parser.add_argument("--dry-run", action="store_true", help="say every step and do none")
    options = parser.parse_args(arguments)
    try:
        about = read_about(bundle)
        problems = mismatches(about, here())
        if problems:
            raise ProblemError("this bundle does not fit: " + "; ".join(problems))
        print("checking the files", flush=True)
        check_sums(bundle)
        if not options.check:
            install(bundle, about, options.into.expanduser().absolute(), dry_run=options.dry_run)
    except ProblemError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


def read_about(bundle: Path) -> dict[str, Any]:
    """bundle.json. Raises ProblemError."""
    try:
        about: dict[str, Any] = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProblemError(f"{bundle} is not a bundle ({error}); unpack the archive again") from None
    if about.get("format") != FORMAT:
        raise ProblemError(f"the bundle has format {about.get('format')!r}; this installer knows format {FORMAT}")
    return about


def here() -> dict[str, Any]:
    """This machine in the terms of bundle.json; cpu_flags is None where the system does not list them."""
    flags = None
    if Path("/proc/cpuinfo").is_file():
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        flags = found[1].split() if found else None
    return {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "platform": sysconfig.get_platform(),
        "libc": platform.libc_ver(),
        "cpu_flags": flags,
    }


def mismatches(about: dict[str, Any], machine: dict[str, Any]) -> list[str]:
    """Every way in which the machine is not what the bundle was made for, with what to do."""
    problems = []
    if about["python"] != machine["python"]:
        problems.append(f"it is for Python {about['python']} and this is {machine['python']} (run it with the other)")
    if about["platform"] != machine["platform"]:
        problems.append(f"it is for {about['platform']} and this is {machine['platform']}")
    needed, found = about["libc"], machine["libc"]
    if needed[0] and (needed[0] != found[0] or _numbers(found[1]) < _numbers(needed[1])):
        seen = " ".join(found).strip() or "another C library"
        problems.append(f"it needs {' '.join(needed)} or newer and here is {seen}")
    if machine["cpu_flags"] is not None:
        missing = sorted(set(about["cpu_flags"]) - set(machine["cpu_flags"]))
        if missing:
            problems.append(f"this processor lacks {', '.join(missing)} (make the bundle on a machine like this one)")
    return problems


def check_sums(bundle: Path) -> None:
    """Every file named in SHA256SUMS, and no file that is not. Raises ProblemError at the first difference."""
    named = {SUMS}
    for line in (bundle / SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        named.add(name)
        if not (bundle / name).is_file():
            raise ProblemError(f"{name} is missing; unpack the archive again")
        if _sha256(bundle / name) != digest:
            raise ProblemError(f"{name} is damaged; copy the archive again")
    for path in (bundle / "wheels").glob("*"):
        if path.relative_to(bundle).as_posix() not in named:
            raise ProblemError(f"{path.name} in wheels is not in {SUMS}; unpack the archive into an empty folder")


def install(bundle: Path, about: dict[str, Any], into: Path, *, dry_run: bool) -> None:
    """Makes a virtual environment in `into`, installs the wheels there and the family into the data folder."""
    scripts = into / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    extras = f"[{','.join(about['extras'])}]" if about["extras"] else ""
    print(f"virtual environment: {into}", flush=True)
    if not dry_run and not python.is_file():
        _make_environment(into)
    print(f"packages: edge-specquant{extras} {about['version']}", flush=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    wheel = next((bundle / "wheels").glob("edge_specquant-*.whl"))
    command += ["--find-links", str(bundle / "wheels"), f"{wheel}{extras}"]
    if not dry_run and subprocess.call(command) != 0:
        raise ProblemError(f"pip could not install the wheels; remove {into} and try again")
    if about["family"]:
        _place_family(bundle / "family" / about["family"], python, dry_run=dry_run)
    target = about["family"] or "FAMILY"
    program = shlex.quote(str(scripts / "edge-specquant"))
    print(f"done. Start with: {program} chat {target}")
    print(f"To undo: {program} models remove {target}, then delete {into}")


def _make_environment(into: Path) -> None:
    try:
        venv.create(into, with_pip=True, symlinks=os.name != "nt")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ProblemError(
            f"{into} could not be made ({error}); Debian and Ubuntu need the package python3-venv"
        ) from None


def _place_family(source: Path, python: Path, *, dry_run: bool) -> None:
    """Copies beside and renames, so that a family is there whole or not at all. One that is there stays."""
    if dry_run:
        print(f"family: {source.name}")
        return
    # Isolated: a clone in the current folder must not answer in place of what was installed.
    asked = subprocess.run([str(python), "-I", "-c", _FAMILIES], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        said = (asked.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ProblemError(f"the installed program does not start: {said}")
    target = Path(asked.stdout.strip()) / source.name
    print(f"family: {target}", flush=True)
    if target.exists():
        print("    there already: kept as it is")
        return
    partial = target.with_name(f".{source.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    partial.replace(target)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
