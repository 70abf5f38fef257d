"""How a family looks on screen and as JSON. User text goes through `rich.text.Text`: never read as markup."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...gguf.family.family import Family, Variant
from ...gguf.format.header import n_nextn_layers
from ...units import format_bytes


def family_document(family: Family) -> dict[str, Any]:
    """The family as plain data."""
    manifest = family.manifest
    return {
        "name": family.name,
        "folder": str(family.folder),
        "architecture": None if manifest is None else manifest.architecture,
        "n_parameters": None if manifest is None else manifest.n_parameters,
        "source": None if manifest is None else asdict(manifest.source),
        "tokenizer_sha256": None if manifest is None else manifest.tokenizer_sha256,
        "notes": [] if manifest is None else list(manifest.notes),
        "variants": {
            variant.name: {
                "file": variant.path.name,
                "n_bytes": variant.n_bytes,
                "sha256": variant.sha256,
                "bits_per_weight": variant.bits_per_weight,
                "weight_types": variant.weight_types,
                "fallback": _fallback(family, variant),
                "notes": list(_notes(family, variant)),
                "imatrix": family.manifest is not None
                and family.manifest.variants[variant.name].imatrix_sha256 is not None,
                "quality": None if variant.quality is None else asdict(variant.quality),
            }
            for variant in family.variants.values()
        },
    }


def print_family(family: Family) -> None:
    """One table of siblings, then what deserves a sentence."""
    console = Console(highlight=False)
    console.print(_table(family))
    for variant in family.variants.values():
        if sentence := _fallback(family, variant):
            console.print(Text(f"{variant.name}: {sentence}"))
        for note in _notes(family, variant):
            console.print(Text(f"{variant.name}: {note}"))
    if family.manifest is not None:
        for note in family.manifest.notes:
            console.print(Text(f"note: {note}"))
    console.print(Text(f"folder: {family.folder}"), soft_wrap=True)


def _table(family: Family) -> Table:
    table = Table(title=Text(_title(family)), title_justify="left")
    measured = any(variant.quality for variant in family.variants.values())
    headings = ["variant", "size", "bits/weight", *(["perplexity", "KLD", "top-1"] if measured else []), "weight types"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("variant", "weight types") else "right")
    for variant in family.variants.values():
        types = ", ".join(f"{count} {name}" for name, count in variant.weight_types.items())
        cells = [variant.name, format_bytes(variant.n_bytes), f"{variant.bits_per_weight:.2f}"]
        cells += [*(_quality_cells(variant) if measured else []), types]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _title(family: Family) -> str:
    manifest = family.manifest
    if manifest is None:
        return f"{family.name} (a single file)"
    return f"{family.name}: {manifest.architecture}, {manifest.n_parameters / 1e6:,.0f} million parameters"


def _quality_cells(variant: Variant) -> list[str]:
    quality = variant.quality
    if quality is None:
        return ["—", "—", "—"]
    kld = "—" if quality.mean_kld is None else f"{quality.mean_kld:.4f}"
    same = "—" if quality.top1_agreement is None else f"{100 * quality.top1_agreement:.1f} %"
    return [f"{quality.perplexity:.2f}", kld, same]


def _notes(family: Family, variant: Variant) -> tuple[str, ...]:
    noted = () if family.manifest is None else family.manifest.variants[variant.name].notes
    n_nextn = n_nextn_layers(variant.path)
    return (*noted, f"next-token layers (MTP): {n_nextn}; --draft mtp") if n_nextn else noted


def _fallback(family: Family, variant: Variant) -> str | None:
    if family.manifest is None:
        return None
    return family.manifest.variants[variant.name].fallback
