"""Draws the pictures of the documentation from documents that benches wrote (`--out`), or from whole outputs.

Usage: python -m edge_specquant.bench.reports.redraw DOCUMENT... Pages in docs/ show `images/BENCH-PLOT.svg`,
such as images/speculation-classes.svg; what they show is drawn, as far as the documents have it. Measures nothing.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ...errors import EdgeSpecQuantError, FileError, told
from ..measure.width_costs import WidthCost
from .document import read_document
from .result import ROUTED, MemoryPoint, Pictures, Result
from .summary import Summary

DOCS = Path("docs")


def main(arguments: Sequence[str]) -> int:
    """Draws and prints each file's name; the exit code."""
    try:
        for path in arguments:
            for picture in redraw(DOCS, read_document(Path(path))):
                print(picture)
    except EdgeSpecQuantError as error:
        print(told(error), file=sys.stderr)
        return 1
    return 0 if arguments else 2


def redraw(docs: Path, document: Mapping[str, Any]) -> Iterator[Path]:
    """Writes what the pages of a folder show of one document. Raises FileError without matplotlib."""
    try:
        from .plots import figures, save
    except ImportError as error:
        raise FileError(f"pictures need matplotlib ({error})") from error
    wanted = shown(docs)
    result = Result("", dict(document), (), (), pictures_of(document))
    for name, _, figure in figures(result):
        path = docs / "images" / f"{document['bench']}-{name}.svg"
        if path.name in wanted:
            save(path, figure)
            yield path


def shown(docs: Path) -> frozenset[str]:
    """Names of the bench's pictures in all pages."""
    pages = (page.read_text(encoding="utf-8") for page in docs.rglob("*.md"))
    return frozenset(name for text in pages for name in re.findall(r"images/([a-z]+-[a-z]+\.svg)", text))


def pictures_of(document: Mapping[str, Any]) -> Pictures:
    """What a bench could draw when it wrote the document."""
    summaries = tuple(_made(Summary, one) for one in document.get("summaries") or ())
    curves = document.get("cost_curves") or {}
    return Pictures(
        summaries=summaries,
        curves={name: tuple(_made(WidthCost, cost) for cost in curve) for name, curve in curves.items()},
        floors_s=document.get("floors_s") or {},
        ceilings={one["name"]: one.get("ceiling_tokens_per_s") for one in document.get("summaries") or ()},
        memory=tuple(_made(MemoryPoint, point) for point in document.get("memory") or ()),
        agreement=agreements(summaries, document.get("quality") or {}, str(document.get("reference"))),
    )


def agreements(
    summaries: Sequence[Summary], quality: Mapping[str, Mapping[str, float] | None], reference: str
) -> dict[str, float]:
    """Agreement with the reference of siblings that answer alone, of routed rows, and of the fastest with its text.

    quality: by sibling, and by name of a routed row, as `bench ablation` measures it; empty gives nothing.
    """
    top1 = {name: found["top1_agreement"] for name, found in quality.items() if found}
    if not top1:
        return {}
    known = {one.name: top1[one.name] for one in summaries if one.name in top1}
    known |= {one.name: top1[one.target] for one in summaries if one.draft == "none" and one.target in top1}
    known[reference] = 1.0
    target = next((one.target for one in summaries if one.name == reference), None)
    # Of a routed row the summary names the most precise target.
    exact = {one.name: one.gain.value for one in summaries if one.target == target and one.draft != ROUTED and one.gain}
    fastest = max(exact.keys() - known.keys(), key=exact.__getitem__, default=reference)
    return {**known, fastest: 1.0}


def _made(kind: Any, value: Any) -> Any:
    """The inverse of `document.plain`: dictionaries and lists as the dataclasses and tuples that `kind` says.

    What the document has and the class has not is left out; what it has not is None.
    """
    if value is None:
        return None
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _made(next(each for each in inner if each is not type(None)), value)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{each.name: _made(hints[each.name], value.get(each.name)) for each in fields(kind)})
    if origin is tuple:
        return tuple(_made(inner[0], each) for each in value)
    if isinstance(value, dict):
        return {name: _made(inner[1], each) for name, each in value.items()}
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
