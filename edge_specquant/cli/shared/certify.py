"""`doctor --certify FAMILY`: the width certificate of every sibling, as a table or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...engine.caches.certificate import Certificate

N_CTX = 512


def certify_family(family: str, as_json: bool) -> bool:
    """Measures, prints, and says whether every sibling is sound (no argmax flip outside near-ties)."""
    from ...engine.caches.certificate import WIDTHS
    from ...engine.caches.certificate_files import certificate
    from ...gguf.convert.convert import ensure_family
    from ...gguf.nested.nested_open import open_sibling
    from ...native.protocol import ContextParams
    from ...placement.machine.this_machine import usable_threads
    from .progress import step_progress

    found: dict[str, Certificate] = {}
    with step_progress() as report:
        opened = ensure_family(family, report)
        for number, name in enumerate(opened.variants):
            report("certifying", number, len(opened.variants))
            with open_sibling(opened, name) as model:
                params = ContextParams(n_ctx=N_CTX, n_batch=64, max_rows=max(WIDTHS), n_threads=usable_threads())
                with model.context(params) as context:
                    found[name] = certificate(context, model.vocab, None)
    if as_json:
        click.echo(json.dumps({name: each.as_dict() for name, each in found.items()}))
    else:
        _print(found)
    return all(each.is_sound for each in found.values())


def _print(found: dict[str, Certificate]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for name, each in found.items():
        table = Table(title=f"{name}: {each.n_tokens} tokens, each width against width 1", title_justify="left")
        for heading in ("width", "largest logit difference", "argmax flips", "outside near-ties", "same bits"):
            table.add_column(heading, justify="right")
        for report in each.widths:
            cells = (str(report.width), f"{report.max_difference:.2g}", str(report.n_flips))
            table.add_row(*cells, str(report.n_flips_outside_ties), "yes" if report.is_identical else "no")
        console.print(table)
        console.print(f"  {_verdict(each)}", markup=False)


def _verdict(each: Certificate) -> str:
    if not each.is_sound:
        return "FAILED: an argmax flipped where the top two logits were not close"
    if each.is_exact:
        return "exact: every width computes the same bits at any length, so a draft changes no greedy reply"
    if each.min_width == 1:
        return (
            "exact: every width computes the same bits, so a draft changes no greedy reply "
            "(from 512 tokens of context on, with --strict)"
        )
    if each.min_width is not None:
        return (
            f"exact under --strict: all widths from {each.min_width} on compute the same bits; "
            f"without it only ties closer than {each.near_tie:.2g} can flip"
        )
    return f"near-ties closer than {each.near_tie:.2g} can flip; --strict decodes token by token, without a draft"
