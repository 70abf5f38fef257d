"""The public Python interface as one Markdown page, read from the source: nothing is imported."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "edge_specquant"

# Heading, file, names; no names: every public one of the file.
PAGES = (
    ("Answering", "runtime/facade.py", ("Runtime",)),
    ("Requests", "request.py", ()),
    ("Conversations", "runtime/conversation.py", ("Conversation",)),
    ("How the engine is set up", "runtime/options.py", ("EngineOptions",)),
    ("Sampling and speculation", "params.py", ()),
    ("What comes out", "engine/events.py", ()),
    ("Figures of a reply", "engine/stats.py", ()),
    ("Families", "gguf/family/family.py", ("Family", "Variant", "Finding")),
    ("Converting", "gguf/convert/convert.py", ()),
    ("Headers of GGUF files", "gguf/format/header.py", ("ModelCard", "read_card")),
    ("Planning", "placement/plan/plan.py", ()),
    ("Plans", "placement/plan/plan_types.py", ()),
    ("Seam: drafters", "engine/drafters/draft.py", ("Draft", "Drafter")),
    ("Seam: controllers", "engine/control/draft_length.py", ("Controller",)),
    ("Seam: the native engine", "native/protocol.py", ()),
    ("Errors", "errors.py", ()),
)


def python_reference() -> str:
    """Signatures and docstrings of PAGES."""
    parts = ["# Python\n\nThe interface for programs, from the docstrings. `import edge_specquant` loads no engine.\n"]
    for heading, file, names in PAGES:
        parts += [f"## {heading}\n", f"`edge_specquant.{file.removesuffix('.py').replace('/', '.')}`\n"]
        parts += [_entry(node) for node in public(PACKAGE / file) if not names or node.name in names]
    return "\n".join(parts)


def public(path: Path) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Classes and functions of a file whose name has no leading underscore and that say what they are."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and _is_public(node):
            yield node


def _is_public(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return not node.name.startswith("_") and ast.get_docstring(node) is not None


def _entry(node: ast.ClassDef | ast.FunctionDef) -> str:
    return _function(node, "###") if isinstance(node, ast.FunctionDef) else _class(node)


def _class(node: ast.ClassDef) -> str:
    bases = ", ".join(map(ast.unparse, node.bases))
    parts = [f"### {node.name}{f' ({bases})' if bases else ''}\n", _prose(node)]
    rows = [_field(statement) for statement in node.body if isinstance(statement, ast.AnnAssign)]
    if rows:
        parts.append("\n".join(["| field | type | default |", "|---|---|---|", *rows, ""]))
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and _is_public(member):
            parts.append(_function(member, "####"))
    return "\n".join(parts)


def _field(statement: ast.AnnAssign) -> str:
    default = "" if statement.value is None else f"`{ast.unparse(statement.value)}`"
    cells = (f"`{ast.unparse(statement.target)}`", f"`{ast.unparse(statement.annotation)}`", default)
    return "| " + " | ".join(cells) + " |"  # a | between backticks divides no cells


def _function(node: ast.FunctionDef, level: str) -> str:
    is_property = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = re.sub(r"^(self|cls)(, |$)", "", ast.unparse(node.args))
    signature = node.name + ("" if is_property else f"({arguments})") + returns
    return f"{level} {node.name}\n\n```python\n{signature}\n```\n\n{_prose(node)}"


def _prose(node: ast.ClassDef | ast.FunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "").replace("<", "&lt;") + "\n"
