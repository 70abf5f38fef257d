"""Bounds on the JSON that callers send to be worked on (schemas): depth, size, repetition, references.

A schema becomes a grammar, and a small schema can ask for an enormous one; what is refused here never gets that far.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import bad_request

MAX_DEPTH = 32
MAX_NODES = 5_000
MAX_BYTES = 64 << 10
MAX_REPETITION = 1_000
MAX_PATTERN = 200
MAX_PATTERN_REPETITION = 100

_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BRACES = re.compile(r"\{(\d*),?(\d*)\}")


def check_schema(schema: Mapping[str, Any], param: str) -> None:
    """Raises ApiError 400 naming the bound that is passed."""
    for n_nodes, (node, depth) in enumerate(_walk(schema), 1):
        if depth > MAX_DEPTH:
            raise bad_request(f"the JSON schema is nested deeper than {MAX_DEPTH}", param)
        if n_nodes > MAX_NODES:
            raise bad_request(f"the JSON schema has more than {MAX_NODES} parts", param)
        if isinstance(node, Mapping):
            _check_node(node, param)
    try:
        n_bytes = len(json.dumps(schema, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise bad_request("the JSON schema holds half of a surrogate pair", param) from None
    if n_bytes > MAX_BYTES:
        raise bad_request(f"the JSON schema has {n_bytes} bytes; at most {MAX_BYTES} are taken", param)


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


def _check_node(node: Mapping[str, Any], param: str) -> None:
    for name in _COUNTS:
        count = node.get(name)
        if isinstance(count, (int, float)) and not 0 <= count <= MAX_REPETITION:
            raise bad_request(f"{name} is {count}; it must be between 0 and {MAX_REPETITION}", param)
    reference = node.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise bad_request("a $ref must point into the schema itself ('#/...'); nothing is fetched", param)
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        counts = [int(number) for found in _BRACES.findall(pattern) for number in found if number]
        if len(pattern) > MAX_PATTERN or max(counts, default=0) > MAX_PATTERN_REPETITION:
            raise bad_request(
                f"a pattern may have {MAX_PATTERN} characters and repeat {MAX_PATTERN_REPETITION} times", param
            )
