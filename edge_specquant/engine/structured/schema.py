"""A caller's JSON schema to one that the matcher enforces to the letter, or a GrammarError that names path and keyword.

Descriptions are dropped, old drafts' spellings made new, references gathered under $defs, and what has no finite value
is taken out. Pure; knows no tokens. The limits are told with their numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ...errors import GrammarError
from .finite import without_endless
from .keywords import (
    BOUNDS,
    COUNTS,
    ENFORCED,
    FORMATS,
    LISTS,
    LISTS_OF_ITEMS,
    MAPS,
    OLD_DRAFTS,
    REFUSED,
    SCHEMAS,
    TYPES,
)

MAX_DEPTH = 32
MAX_PARTS = 5_000
MAX_BYTES = 64 << 10
MAX_COUNT = 100_000
MAX_PATTERN = 1_000
MAX_NUMBER = 1 << 53  # beyond it neighbouring integers are one and the same double


def exact(schema: Any, *, about: str = "the JSON schema") -> Any:
    """The schema as the matcher takes it: a mapping, or True. Raises GrammarError, beginning with `about`."""
    _check_size(schema, about)
    draft = str(schema.get("$schema", "")) if isinstance(schema, Mapping) else ""
    reader = _Reader(schema, about, draft)
    root = reader.read(schema, "#")
    while reader.wanted:
        pointer, name = reader.wanted.popitem()
        reader.definitions[name] = reader.read(_pointed_at(schema, pointer, about), pointer)
    if reader.has_inner_id and (reader.definitions or reader.refers_to_root):
        raise GrammarError(f"{about}: '$id' below the root together with '$ref' cannot be enforced")
    whole = without_endless(root, reader.definitions)
    if whole is False:
        raise GrammarError(f"{about}: no finite JSON value can satisfy it; is something required inside itself?")
    return whole


def pointer_of(path: str, step: str | int) -> str:
    """A JSON pointer one step deeper."""
    return f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"


@dataclass(slots=True)
class _Reader:
    """One schema's reading: definitions found on the way, by their new names."""

    root: Any
    about: str
    draft: str
    names: dict[str, str] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, Any] = field(default_factory=dict)
    has_inner_id: bool = False
    refers_to_root: bool = False

    def refuse(self, path: str, keyword: str, why: str) -> GrammarError:
        return GrammarError(f"{self.about}: '{keyword}' at {path} {why}")

    def read(self, node: Any, path: str) -> Any:
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            raise GrammarError(f"{self.about}: {path} is {type(node).__name__}, not a schema")
        self.has_inner_id |= path != "#" and isinstance(node.get("$id", node.get("id")), str)
        node = self._modern(dict(node), path)
        made = {key: self._value(node, key, path) for key in node if key in ENFORCED}
        made = {key: value for key, value in made.items() if value is not None or key == "const"}
        for key in node:
            if key in REFUSED and not _is_idle(node, key):
                raise self.refuse(path, key, "cannot be enforced; leave it out or say it otherwise")
        self._check_counted_names(made, path)
        return made

    def _value(self, node: Mapping[str, Any], key: str, path: str) -> Any:
        """The keyword's value as it goes on; None leaves it out."""
        value, here = node[key], pointer_of(path, key)
        if key in SCHEMAS:
            return self.read(value, here)
        if key in LISTS:
            self._want(isinstance(value, list) and value, path, key, "must be a list of schemas")
            return [self.read(child, pointer_of(here, i)) for i, child in enumerate(value)]
        if key in MAPS:
            self._want(isinstance(value, Mapping), path, key, "must be an object of schemas")
            return {name: self.read(child, pointer_of(here, name)) for name, child in value.items()}
        if key == "$ref":
            return self._reference(value, path)
        return self._checked(node, key, value, path)

    def _checked(self, node: Mapping[str, Any], key: str, value: Any, path: str) -> Any:
        if key in COUNTS:
            fits = _is_number(value) and value == int(value) and 0 <= value <= MAX_COUNT
            self._want(fits, path, key, f"is {_shown(value)}; it must be a whole number from 0 to {MAX_COUNT:,}")
            return int(value)
        if key in (*BOUNDS, "multipleOf"):
            fits = _is_number(value) and abs(value) <= MAX_NUMBER and (key != "multipleOf" or value > 0)
            self._want(fits, path, key, f"is {_shown(value)}; it must be a number of at most 2^53, multipleOf above 0")
            return _canonical(value)
        if key in ("enum", "const"):
            self._want(key == "const" or (isinstance(value, list) and value), path, key, "must be a list of values")
            self._want(_is_exact(value), path, key, "holds a number beyond 2^53, which JSON does not keep exactly")
            return _canonical(value)
        if key == "type":
            given = value if isinstance(value, list) else [value]
            known = given and all(isinstance(each, str) and each in TYPES for each in given)
            self._want(known, path, key, f"is {_shown(value)}; the types are {', '.join(sorted(TYPES))}")
            return value
        if key == "required":
            self._want(_are_texts(value), path, key, "must be a list of names")
            return value
        self._want(isinstance(value, str), path, key, "must be a text")
        if key == "pattern":
            long = f"has {len(value)} characters; at most {MAX_PATTERN} are taken"
            self._want(len(value) <= MAX_PATTERN, path, key, long)
            return value
        return self._format(node, value, path)

    def _format(self, node: Mapping[str, Any], value: str, path: str) -> str | None:
        """Formats speak of strings alone: one beside another type only describes."""
        types = node.get("type", "string")
        if types != "string" and "string" not in types:
            return None
        self._want(value in FORMATS, path, "format", f"is '{value}'; those enforced are {', '.join(sorted(FORMATS))}")
        return value

    def _reference(self, value: Any, path: str) -> str:
        local = isinstance(value, str) and (value == "#" or value.startswith("#/"))
        self._want(local, path, "$ref", f"is {_shown(value)}; it must point into the schema itself ('#/...')")
        if value == "#":
            self.refers_to_root = True
            return "#"
        _pointed_at(self.root, value, self.about)
        if value not in self.names:
            self.names[value] = f"r{len(self.names)}"
            self.wanted[value] = self.names[value]
        return f"#/$defs/{self.names[value]}"

    def _modern(self, node: dict[str, Any], path: str) -> dict[str, Any]:
        """The old drafts' spellings in the newest one's."""
        if any(draft in self.draft for draft in OLD_DRAFTS) and "$ref" in node:
            beside = sorted(key for key in node if key != "$ref" and (key in ENFORCED or key in REFUSED))
            if beside:
                raise self.refuse(path, beside[0], "stands beside '$ref', which means nothing in this draft")
        for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(strict), bool) and "draft-04" in self.draft:
                is_strict = node.pop(strict)
                if is_strict and bound in node:
                    node[strict] = node.pop(bound)
        old = any(draft in self.draft for draft in LISTS_OF_ITEMS)
        if old:
            node.pop("prefixItems", None)
        if isinstance(node.get("items"), list):
            self._want(old, path, "items", "is a list; this draft calls that 'prefixItems'")
            prefix, rest = node.pop("items"), node.pop("additionalItems", True)
            node |= {"prefixItems": prefix, "items": rest} if prefix else {"items": rest}
        node.pop("additionalItems", None)  # without a list of items it says nothing
        return node

    def _check_counted_names(self, made: dict[str, Any], path: str) -> None:
        """A model may write one free name twice, so that fewer are left: only what cannot be missed is taken."""
        least: int = made.get("minProperties", 0)
        if least <= len(set(made.get("required", ()))):
            made.pop("minProperties", None)
        elif least > 1:
            raise self.refuse(path, "minProperties", f"is {least}; more than 1 can be had by 'required' alone")

    def _want(self, holds: object, path: str, keyword: str, why: str) -> None:
        if not holds:
            raise self.refuse(path, keyword, why)


def _is_idle(node: Mapping[str, Any], key: str) -> bool:
    """Whether a keyword that cannot be enforced asks for nothing here."""
    if key == "uniqueItems":
        most = node.get("maxItems")
        return node[key] is False or (isinstance(most, (int, float)) and most <= 1)
    if key in ("minContains", "maxContains"):
        return "contains" not in node
    if key in ("then", "else"):
        return "if" not in node
    if key == "if":
        return "then" not in node and "else" not in node
    return key.startswith("unevaluated") and node[key] is True


def _pointed_at(root: Any, pointer: str, about: str) -> Any:
    """The schema at a JSON pointer. Raises GrammarError where there is none."""
    node = root
    for step in unquote(pointer[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            raise GrammarError(f"{about}: '$ref' to {pointer[:200]} leads nowhere")
    return node


def _check_size(schema: Any, about: str) -> None:
    for n_parts, (_, depth) in enumerate(_walk(schema), 1):
        if depth > MAX_DEPTH:
            raise GrammarError(f"{about} is nested deeper than {MAX_DEPTH}")
        if n_parts > MAX_PARTS:
            raise GrammarError(f"{about} has more than {MAX_PARTS:,} parts")
    try:
        n_bytes = len(json.dumps(schema, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise GrammarError(f"{about} holds half of a surrogate pair") from None
    except (TypeError, ValueError) as error:
        raise GrammarError(f"{about} is no JSON: {error}") from None
    if n_bytes > MAX_BYTES:
        raise GrammarError(f"{about} has {n_bytes:,} bytes; at most {MAX_BYTES:,} are taken")


def _walk(root: Any) -> Iterator[tuple[Any, int]]:
    """Every node with its depth, without recursion."""
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        if isinstance(node, Mapping):
            stack.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list):
            stack.extend((child, depth + 1) for child in node)


def _everywhere(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _everywhere(child, change) for key, child in value.items()}
    if isinstance(value, list):
        return [_everywhere(child, change) for child in value]
    return change(value)


def _canonical(value: Any) -> Any:
    """1.0 is 1 in JSON Schema, and is written so."""
    return _everywhere(value, lambda leaf: int(leaf) if isinstance(leaf, float) and leaf == int(leaf) else leaf)


def _is_exact(value: Any) -> bool:
    return all(not _is_any_number(leaf) or (_is_number(leaf) and abs(leaf) <= MAX_NUMBER) for leaf, _ in _walk(value))


def _is_any_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_any_number(value) and (isinstance(value, int) or math.isfinite(value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _shown(value: Any) -> str:
    return repr(value)[:60]
