"""Runs conversions that die, by the hard way out, just before their Nth change to the disk; prints what became of it.

Takes a folder to work in and two sources; builds a random tree of a user's own files and links around and inside the
family's folder for each seed. Prints one JSON object a run: what of the user's is no longer as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_specquant.errors import EdgeSpecQuantError
from edge_specquant.gguf.convert.convert import ConvertOptions, convert, open_source, plan_conversion
from edge_specquant.gguf.family.family import Family, family_folder, remove_family

NAMES = ("notes.txt", "m-f16.gguf", "m-bf16.gguf", ".x.partial", "m-f16-2.gguf", ".old.gguf.1.partial", "manifest.bak")
CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "shutil.rmtree"})
KILLED = 9

_steps_left: int | None = None


def main() -> None:
    root, first, other, seeds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    sys.addaudithook(_die_in_time)
    for seed in range(seeds):
        chance = random.Random(seed)
        home = root / str(seed)
        os.environ["EDGE_SPECQUANT_HOME"] = str(home)
        with_family = chance.random() < 0.75
        if with_family:
            _make(first, ["f16"], force=False)
        _strew(home, chance)
        before = _snapshot(home, _ours() if with_family else set())
        actions: list[Callable[[], object]] = [
            lambda: _make(first, ["f16", "bf16"], force=False),
            lambda: _make(other, ["f16", "bf16"], force=True),
            lambda: _make(first, ["bf16"], force=True),
            lambda: remove_family("m"),
        ]
        did = [_killed(chance.choice(actions), chance.randrange(40)) for _ in range(3)]
        after_kills = _usable(with_family)
        did.append(_killed(lambda: _make(other, ["f16"], force=True), 10**6))
        lost = sorted(name for name, what in before.items() if _fingerprint(home / name) != what)
        print(json.dumps({"seed": seed, "lost": lost, "ends": did, "half": after_kills, "files": len(before)}))


def _make(source: str, variants: list[str], *, force: bool) -> None:
    convert(plan_conversion(open_source(source), "m", variants), ConvertOptions(force=force))


def _usable(with_family: bool) -> str | None:
    """What is wrong with the family after kills; a family that never was, or was removed, is nothing wrong."""
    if not with_family:
        return None
    try:
        family = Family.open("m")
    except EdgeSpecQuantError:
        return None
    return next((finding.detail for finding in family.verify() if not finding.ok), None)


def _strew(home: Path, chance: random.Random) -> None:
    """A user's files, folders and links: beside the family, in it, below it, and links that lead out of it."""
    families = home / "families"
    outside = home / "mine"
    outside.mkdir(parents=True)
    (outside / "weights.gguf").write_bytes(chance.randbytes(50))
    for folder in (families / "m", families / "m" / "deep" / "er", families / "n", families / ".new-m"):
        if chance.random() < 0.5:
            folder.mkdir(parents=True, exist_ok=True)
            for name in chance.sample(NAMES, 3):
                path = folder / name
                if os.path.lexists(path):
                    continue
                if chance.random() < 0.3:
                    path.symlink_to(outside if chance.random() < 0.5 else outside / "weights.gguf")
                else:
                    path.write_bytes(chance.randbytes(20))
    if not (families / "m").exists() and chance.random() < 0.3:
        families.mkdir(exist_ok=True)
        (families / "m").symlink_to(outside)


def _ours() -> set[str]:
    folder = family_folder("m")
    return {f"families/m/{name}" for name in ("manifest.json", ".proof.json", "m-f16.gguf") if (folder / name).exists()}


def _snapshot(home: Path, ours: set[str]) -> dict[str, str]:
    names = [path.relative_to(home).as_posix() for path in home.rglob("*")]
    found = {name: _fingerprint(home / name) for name in names if name not in ours and not name.endswith(".lock-m")}
    return {name: what for name, what in found.items() if what != "folder"}


def _fingerprint(path: Path) -> str:
    if path.is_symlink():
        return f"link {path.readlink()}"
    if path.is_dir():
        return "folder"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "gone"


def _killed(action: Callable[[], object], steps: int) -> str:
    """Runs in a child that ends without clean-up before its change number `steps`."""
    child = os.fork()
    if child == 0:
        with _last_words():
            _arm(steps)
            action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return {0: "done", KILLED: "killed", 2: "refused"}.get(os.waitstatus_to_exitcode(status), "crashed")


@contextmanager
def _last_words() -> Iterator[None]:
    try:
        yield
    except EdgeSpecQuantError:
        os._exit(2)
    except BaseException as error:  # reported as a crash, whatever it is
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(3)


def _arm(steps: int) -> None:
    global _steps_left
    _steps_left = steps


def _die_in_time(event: str, arguments: tuple[object, ...]) -> None:
    global _steps_left
    if _steps_left is None or not (event in CHANGES or (event == "open" and _writes(arguments))):
        return
    if _steps_left == 0:
        os._exit(KILLED)
    _steps_left -= 1


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


if __name__ == "__main__":
    main()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
