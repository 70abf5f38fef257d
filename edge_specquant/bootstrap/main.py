"""What the files in `scripts/` call: quickstart, test, check, bench, readme-table, docs,
engine-flags, bundle, sbom.

Errors become one sentence and exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import EdgeSpecQuantError, told
from .commands import say
from .engine.facts import gather
from .engine.flags import choose
from .release.release import bundle, docs, sbom
from .setup import prepare
from .suite import run_whole_suite

_ROOT = Path(__file__).resolve().parents[2]
_WITH_TABLE = ("README.md", "docs/which-siblings.md")
_PROMPT = "Explain in two sentences why the sky is blue."


def main(name: str, arguments: Sequence[str]) -> int:
    """Runs one script; returns its exit code. 130 when interrupted, 143 when told to end."""
    signal.signal(signal.SIGTERM, _end)
    try:
        return _SCRIPTS[name](list(arguments))
    except EdgeSpecQuantError as error:
        print(told(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; run it again to go on", file=sys.stderr)
        return 130


def quickstart(arguments: list[str]) -> int:
    """From a bare clone to an answer."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description="Set everything up and answer a prompt.")
    parser.add_argument("prompt", nargs="*", help=f"what to ask (default: {_PROMPT})")
    parser.add_argument("--rpc", action="store_true", help="build the engine with RPC, to share work between machines")
    parser.add_argument("--rebuild", action="store_true", help="build the engine again even if it was built before")
    options = parser.parse_args(arguments)
    python = prepare(_ROOT, ("demo",), rpc=options.rpc, rebuild=options.rebuild)
    program = _beside(python, "edge-specquant")
    prompt = " ".join(options.prompt) or _PROMPT
    say(f'\n$ {program} run demo "{prompt}"')
    status = subprocess.call([str(program), "run", "demo", "--", prompt])
    if status == 0:
        say(f"\nNext: {program} chat demo")
    return status


def test(arguments: list[str]) -> int:
    """The whole test suite, or what pytest is told."""
    python = prepare(_ROOT, ("demo", "dev"))
    if not arguments:
        return run_whole_suite(_ROOT, python)
    return subprocess.call([str(python), "-m", "pytest", *arguments], cwd=_ROOT)


def check(arguments: list[str]) -> int:
    """Style, types, the import rule, the documents; shell scripts where shellcheck is installed."""
    argparse.ArgumentParser(prog="scripts/check", description="ruff, mypy, imports, docs").parse_args(arguments)
    failed = []
    for name, command in _checks(str(prepare(_ROOT, ("demo", "dev")))).items():
        say(f"\n{name}")
        begun = time.monotonic()
        status = subprocess.call(command, cwd=_ROOT)
        failed += [name] if status else []
        say(f"  {'FAILED' if status else 'ok'}, {time.monotonic() - begun:.0f} s")
    say(f"\ncheck: {'failed: ' + '; '.join(failed) if failed else 'all well'}")
    return 1 if failed else 0


def _checks(python: str) -> dict[str, list[str]]:
    """Commands by what they check. The test of the pages builds the site strictly."""
    pytest = [python, "-m", "pytest", "-q", "--no-header"]
    steps = {
        "style (ruff)": [python, "-m", "ruff", "check", "--quiet", "."],
        "types (mypy --strict)": [python, "-m", "mypy", "--no-error-summary"],
        "import rule": [*pytest, "tests/test_imports.py"],
        "documents (site, links, commands)": [*pytest, "tests/docs/test_pages.py", "tests/docs/test_commands.py"],
    }
    if shutil.which("shellcheck"):
        steps["shell scripts"] = ["shellcheck", "-x", *sorted(map(str, (_ROOT / "packaging").rglob("*.sh")))]
    return steps


def bench(arguments: list[str]) -> int:
    """`edge-specquant bench` with what its plots need; on the demo when nothing is said."""
    python = prepare(_ROOT, ("demo", "bench"))
    return subprocess.call([str(_beside(python, "edge-specquant")), "bench", *(arguments or ["demo"])])


def readme_table(arguments: list[str]) -> int:
    """Measures the demo and renews the table in README.md and docs; or takes the document of an earlier bench."""
    parser = argparse.ArgumentParser(prog="scripts/readme-table", description="Renew the table in README.md and docs.")
    parser.add_argument("document", nargs="?", type=Path, help="what --out of a bench wrote (default: measure now)")
    parser.add_argument("--family", default="demo", help="what to measure (default: demo)")
    options = parser.parse_args(arguments)
    program = str(_beside(prepare(_ROOT, ("demo", "bench")), "edge-specquant"))
    document = options.document
    if document is None:
        document = _ROOT / ".venv" / "readme-table.json"
        status = subprocess.call([program, "bench", "speculation", options.family, "--out", str(document)])
        if status:
            return status
    renew = [program, "bench", "readme", str(document), "--file"]
    return max(subprocess.call([*renew, str(_ROOT / page)]) for page in _WITH_TABLE)


def engine_flags(arguments: list[str]) -> int:
    """CMAKE_ARGS on stdout, and nothing else there; the reasons on stderr."""
    parser = argparse.ArgumentParser(prog="scripts/engine-flags", description="Print CMAKE_ARGS for this machine.")
    parser.add_argument("--rpc", action="store_true", help="with RPC")
    parser.add_argument("--explain", action="store_true", help="give the reasons, on standard error")
    options = parser.parse_args(arguments)
    flags = choose(gather(), rpc=options.rpc, extra=os.environ.get("CMAKE_ARGS", ""))
    if options.explain:
        print("\n".join(flags.reasons), file=sys.stderr)
    print(flags.text)
    return 0


def _beside(python: Path, program: str) -> Path:
    path = python.with_name(program + (".exe" if os.name == "nt" else ""))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _end(number: int, frame: object) -> None:
    del frame
    sys.exit(128 + number)


_SCRIPTS: dict[str, Callable[[list[str]], int]] = {
    "quickstart": quickstart,
    "test": test,
    "check": check,
    "docs": partial(docs, _ROOT),
    "bench": bench,
    "readme-table": readme_table,
    "engine-flags": engine_flags,
    "bundle": partial(bundle, _ROOT),
    "sbom": partial(sbom, _ROOT),
}
