"""The import rule: a file imports from earlier layers and, without cycles, from its own room; each foreign package
has its only places."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "edge_specquant"
NAME = PACKAGE.name
# Rooms of one layer do not know each other, except on the ground.
LAYERS = (
    {"__init__"},
    {"errors", "units", "extras", "config", "params", "request", "printable", "streams", "bootstrap"},
    {"native"},
    {"gguf"},
    {"placement"},
    {"engine", "routing", "store"},
    {"runtime"},
    {"server", "tui", "bench"},
    {"cli"},
    {"__main__"},
)
GROUND = 1
# Rooms within a room, files and folders alike, from the ground up: each imports only what stands on an earlier step.
STEPS = {
    "native": (
        {"protocol", "library"},
        {"vocab", "sampler", "quantizer", "context", "fake", "kernel"},
        {"hooks"},
        {"model"},
        {"nested", "selftest"},
        {"opening"},
    ),
    "gguf": ({"format"}, {"quantize"}, {"checkpoint"}, {"family"}, {"nested"}, {"convert"}),
    "placement": ({"machine"}, {"power"}, {"cost"}, {"plan"}),
    "engine": (
        {"structured"},
        {"constraint"},
        {"signals", "sampling", "text", "parallel", "caches"},
        {"stats"},
        {"events"},
        {"control", "prompts"},
        {"thoughts"},
        {"drafters"},
        {"verify"},
        {"stream"},
        {"session"},
    ),
    "routing": ({"features"}, {"policy"}, {"tier_models"}, {"router"}, {"records"}, {"learn", "dispatcher"}),
    "store": ({"records"}, {"rows"}, {"file"}, {"formats"}, {"streaming"}, {"store"}, {"__init__"}),
    "runtime": (
        {"options", "reply", "conversation", "logs", "status"},
        {"models", "serving"},
        {"local"},
        {"process"},
        {"facade"},
        {"__init__"},
    ),
    "server": (
        {"errors", "options", "metrics"},
        {"requests"},
        {"queue"},
        {"answers", "http"},
        {"app"},
        {"serve", "setup"},
    ),
    "bench": (
        {"measure"},
        {"reports"},
        {"runs"},
        {"peers", "evaluation"},
        {"benches"},
        {"papers"},
    ),
    "cli": ({"shared"}, {"verbs"}, {"main"}, {"__init__"}),
}
FOREIGN = {
    "llama_cpp": ("native/*",),
    "gguf": ("gguf/*", "native/selftest/tiny*.py"),
    "psutil": ("placement/*",),
    "pynvml": ("placement/*",),
    "spacy": ("routing/features/features*.py",),
    "textual": ("tui/*",),
    "fastapi": ("server/*",),
    "uvicorn": ("server/*",),
    "starlette": ("server/*",),
    "sse_starlette": ("server/*",),
    "prometheus_client": ("server/*",),
    "pydantic": ("server/*",),
    "safetensors": (),
    "huggingface_hub": ("gguf/checkpoint/hub.py", "bench/evaluation/questions.py"),
    "tokenizers": ("gguf/checkpoint/tokenizer.py",),
    "sentencepiece": ("gguf/checkpoint/tokenizer.py",),
    "matplotlib": ("bench/reports/plots.py",),
    "xllamacpp": ("bench/peers/peer_child.py",),
    "pyarrow": ("bench/evaluation/questions.py",),
    "llguidance": ("engine/constraint.py", "engine/structured/compiling.py"),
    "rich": ("cli/*", "bench/*", "tui/*"),
    "click": ("cli/*", "bench/*", "tui/*"),
}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, source: str | None = None) -> Iterator[str]:
    """Absolute dotted names of everything a file imports, at its top or inside a function."""
    here = [NAME, *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(source if source is not None else path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def room(path: Path) -> str:
    """The folder or the file directly below the package that holds a file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def room_of_name(name: str) -> str:
    """The room an absolute name of this package points into; names of the package itself are its `__init__`."""
    first = f"{name}.__init__".split(".")[1]
    return first if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file() else "__init__"


def layer(name: str) -> int:
    found = [number for number, rooms in enumerate(LAYERS) if name in rooms]
    assert found, f"'{name}' has no layer: give it one in LAYERS"
    return found[0]


def step(path: Path) -> tuple[str, int] | None:
    """The room and the step in it of a file or folder; None where the room has no steps."""
    parts = [part.removesuffix(".py") for part in path.relative_to(PACKAGE).parts]
    if parts[0] not in STEPS or len(parts) < 2:
        return None
    found = [number for number, names in enumerate(STEPS[parts[0]]) if parts[1] in names]
    assert found or parts[1] == "__init__", f"'{parts[0]}/{parts[1]}' has no step: give it one in STEPS"
    return parts[0], found[0] if found else -1


def inner_breaches(path: Path, source: str | None = None) -> list[str]:
    """Every import of a file from its own room that looks upwards or sideways."""
    own, where = step(path), path.relative_to(PACKAGE)
    if own is None:
        return []
    found = []
    for name in imports(path, source):
        parts = name.split(".")
        if parts[:2] != [NAME, own[0]] or len(parts) < 3 or parts[2] == where.parts[1].removesuffix(".py"):
            continue
        other = step(PACKAGE / parts[1] / parts[2])
        if other is None or other[1] >= own[1]:
            found.append(f"{where.as_posix()} imports {name}")
    return found


def breaches(path: Path, source: str | None = None) -> list[str]:
    """Every import of a file that the rule forbids."""
    own, where = room(path), path.relative_to(PACKAGE).as_posix()
    found = []
    for name in imports(path, source):
        top = name.split(".")[0]
        if top == NAME:
            other = room_of_name(name)
            may = other == own or layer(other) < layer(own) or layer(other) == layer(own) == GROUND
            may = may or own == "__init__"  # which offers the runtime's names, imported when asked for
        elif own == "bootstrap":
            may = top in sys.stdlib_module_names
        else:
            may = top not in FOREIGN or any(fnmatch.fnmatch(where, pattern) for pattern in FOREIGN[top])
        if not may:
            found.append(f"{where} imports {name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_file_imports_only_what_it_may(path: Path) -> None:
    assert breaches(path) + inner_breaches(path) == []


def test_no_file_imports_in_a_circle() -> None:
    modules = {".".join([NAME, *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in FILES}
    graph = {}
    for module, path in modules.items():
        # `from .x import y` names module x, or y itself when y is a module.
        graph[module] = {
            target
            for name in imports(path)
            for target in (name, name.rpartition(".")[0])
            if target in modules and target != module
        }
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_the_rule_sees_breaches() -> None:
    errors, draft, setup = PACKAGE / "errors.py", PACKAGE / "engine/drafters/draft.py", PACKAGE / "bootstrap/setup.py"
    assert breaches(errors, "from .engine import stream")
    assert breaches(draft, "def f():\n    import llama_cpp.llama_cpp")
    assert breaches(draft, "from ...routing import router")
    assert breaches(draft, "from ... import cli")
    assert inner_breaches(draft, "from ..session import Session")
    assert inner_breaches(PACKAGE / "engine/control/costs.py", "from ..prompts import template")
    assert breaches(setup, "import numpy")
    lawful = ("from ...native import model", "from ..stats import StatsBuilder", "from . import redo", "import numpy")
    assert not breaches(draft, "\n".join(lawful))
    assert not inner_breaches(draft, "\n".join(lawful))


def test_importing_the_package_imports_no_other_package() -> None:
    script = f"import sys; import {NAME}; print([m for m in sys.modules if m.split('.')[0] in {sorted(FOREIGN)}])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
