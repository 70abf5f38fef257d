"""Which parts of a schema have a finite value at all: one that requires itself has none, and is taken out. Pure.

A least fixpoint over the definitions. It errs on the side of finite: only what is certain to go on for ever is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .keywords import MAPS

Ends = Mapping[str, bool]
"""By reference: whether some value is known to end."""


def without_endless(root: Any, definitions: dict[str, Any]) -> Any:
    """The whole schema with its definitions; references to what never ends are False. False when nothing ends."""
    nodes = {"#": root} | {f"#/$defs/{name}": node for name, node in definitions.items()}
    ends = dict.fromkeys(nodes, False)
    while True:
        found = {name: _ends(node, ends) for name, node in nodes.items()}
        if found == ends:
            break
        ends = found
    if not ends["#"]:
        return False
    root = _cut(root, ends)
    kept = {name: _cut(node, ends) for name, node in definitions.items() if ends[f"#/$defs/{name}"]}
    return {**root, "$defs": kept} if kept and isinstance(root, Mapping) else root


def _ends(node: Any, ends: Ends) -> bool:
    if isinstance(node, bool):
        return node
    if "$ref" in node and not ends[node["$ref"]]:
        return False
    if not all(_ends(child, ends) for child in node.get("allOf", ())):
        return False
    if any(word in node and not any(_ends(child, ends) for child in node[word]) for word in ("anyOf", "oneOf")):
        return False
    types = node.get("type")
    if types in ("object", ["object"]):
        known, other = node.get("properties", {}), node.get("additionalProperties", True)
        return all(_ends(known.get(name, other), ends) for name in node.get("required", ()))
    if types in ("array", ["array"]):
        prefix, n = node.get("prefixItems", []), node.get("minItems", 0)
        rest = _ends(node.get("items", True), ends) or n <= len(prefix)
        return rest and all(_ends(child, ends) for child in prefix[:n])
    return True


def _cut(node: Any, ends: Ends) -> Any:
    if isinstance(node, list):
        return [_cut(child, ends) for child in node]
    if not isinstance(node, Mapping):
        return node
    if isinstance(node.get("$ref"), str) and not ends.get(node["$ref"], True):
        return False
    return {key: _cut_under(key, child, ends) for key, child in node.items()}


def _cut_under(keyword: str, value: Any, ends: Ends) -> Any:
    if keyword in MAPS:  # its keys are names
        return {name: _cut(child, ends) for name, child in value.items()}
    return value if keyword in ("enum", "const") else _cut(value, ends)
