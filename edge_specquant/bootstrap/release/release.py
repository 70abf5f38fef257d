"""What `scripts/bundle`, `scripts/sbom` and `scripts/docs` do: places and names; others do the work."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from ... import __version__
from ...errors import SetupError
from ..commands import say
from ..engine.facts import gather
from ..engine.flags import choose
from ..engine.wheel import cached_wheel, describe_build
from ..places import setup_cache
from ..setup import engine_version, prepare
from .bundle import BundleOrder, family_files, make_bundle
from .sbom import bill_of_materials, components_installed

USUAL_EXTRAS = "server,router"
_FAMILY = """import sys
from edge_specquant.gguf.convert.convert import ensure_family
print(ensure_family(sys.argv[1]).folder)"""


def bundle(root: Path, arguments: list[str]) -> int:
    """One archive for machines like this one."""
    parser = argparse.ArgumentParser(prog="scripts/bundle", description="Pack an archive that installs offline.")
    parser.add_argument("family", nargs="?", default="demo", help="the family to pack (default: demo)")
    parser.add_argument("--no-family", action="store_true", help="pack the program only")
    parser.add_argument("--extras", default=USUAL_EXTRAS, help=f"extras, with commas between (default: {USUAL_EXTRAS})")
    parser.add_argument("--out", type=Path, help="the archive (default: dist/edge-specquant-VERSION-PLATFORM.tar)")
    parser.add_argument("--links", type=Path, help="take wheels from this folder instead of the package index")
    parser.add_argument("--dry-run", action="store_true", help="say what would be packed and pack nothing")
    options = parser.parse_args(arguments)
    name = f"edge-specquant-{__version__}-{sysconfig.get_platform()}.tar"
    target = (options.out or root / "dist" / name).absolute()
    if options.dry_run:
        family = "no family" if options.no_family else f"the family {options.family}"
        say(f"{target}: edge-specquant[{options.extras}] {__version__}, engine {engine_version(root)}, {family}")
        return 0
    python = prepare(root, ("demo",))
    flags = choose(gather(), extra=os.environ.get("CMAKE_ARGS", ""))
    wheel = cached_wheel(describe_build(engine_version(root), flags, gather()), setup_cache())
    if wheel is None:
        raise SetupError("the engine of this machine is not in the cache; run scripts/quickstart --rebuild")
    order = BundleOrder(
        root=root,
        python=python,
        engine_wheel=wheel,
        engine_flags=flags,
        extras=tuple(part.strip() for part in options.extras.split(",") if part.strip()),
        family=None if options.no_family else _family_folder(python, options.family),
        target=target,
        links=options.links and options.links.absolute(),
    )
    made = make_bundle(order, setup_cache() / "logs" / "bundle.log")
    say(f"{made}: {made.stat().st_size / 1e6:.0f} MB")
    say("There: tar -xf it, then python3 install.py in the folder")
    return 0


def sbom(root: Path, arguments: list[str]) -> int:
    """The document on stdout; it describes what `.venv` has, so it is asked there."""
    parser = argparse.ArgumentParser(prog="scripts/sbom", description="Print a bill of materials (CycloneDX).")
    parser.add_argument("--extras", default="demo,server,web,router,bench", help="extras, with commas between")
    options = parser.parse_args(arguments)
    python = root / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if Path(sys.prefix).resolve() != (root / ".venv").resolve() and python.exists():
        return subprocess.call([str(python), str(root / "scripts" / "sbom"), *arguments])
    components = components_installed("edge-specquant", options.extras.split(","))
    if not components:
        raise SetupError("edge-specquant is not installed for this Python; run scripts/quickstart first")
    print(json.dumps(bill_of_materials("edge-specquant", __version__, components), indent=1, ensure_ascii=False))
    return 0


def docs(root: Path, arguments: list[str]) -> int:
    """The site, or a preview of it; the page of licences is written on request, since it is kept."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Build the documents into site/.")
    parser.add_argument("--serve", action="store_true", help="preview on http://127.0.0.1:8000")
    parser.add_argument("--licences", action="store_true", help="write docs/licences.md from what is installed")
    options = parser.parse_args(arguments)
    python = str(prepare(root, ("demo", "dev")))
    if not options.licences:
        verb = ["serve"] if options.serve else ["build", "--strict"]
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        return subprocess.call([python, "-m", "mkdocs", *verb], cwd=root, env=environment)
    command = [python, "-c", "from _docs.licences import licences; print(licences(), end='')"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "scripts"), str(root)])}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if done.returncode == 0:
        (root / "docs" / "licences.md").write_bytes(done.stdout)
    return done.returncode


def _family_folder(python: Path, name: str) -> Path:
    """Where the family lies; the demo is made when it is not there. Raises SetupError."""
    asked = subprocess.run([str(python), "-c", _FAMILY, name], stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        raise SetupError(f"there is no family '{name}'; make one with: edge-specquant convert SOURCE --name {name}")
    folder = Path(asked.stdout.strip().splitlines()[-1])
    say(f"family {name}: {len(family_files(folder))} files in {folder}")
    return folder
