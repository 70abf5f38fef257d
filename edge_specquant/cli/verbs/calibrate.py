"""`edge-specquant calibrate`: measures what each sibling's forwards cost here, for the controller and the planner."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...gguf.family.family import Family
    from ...placement.cost.calibrate import Calibration
    from ..shared.progress import StepProgress

_SHOWN_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 32)


@click.command()
@click.argument("family")
@click.option("--variants", metavar="A,B", help="Only these siblings.")
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="Threads; 0 is the engine's choice.")
@click.option("--gpu-layers", "n_gpu_layers", type=int, default=0, help="Layers on the GPU.")
@click.option(
    "--passes", type=click.IntRange(1, 15), default=5, show_default=True, help="Repeats; more when it is noisy."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(family: str, variants: str | None, n_threads: int, n_gpu_layers: int, passes: int, as_json: bool) -> None:
    """Measure t(width) of every sibling of FAMILY, as target and as draft, and keep the curves.

    Where the machine has an energy meter, watts too.
    """
    from ...gguf.convert.convert import ensure_family
    from ...placement.machine.this_machine import usable_threads
    from ..shared.progress import step_progress

    n_threads = n_threads or usable_threads()
    with step_progress() as report:
        opened = ensure_family(family, report)
        names = variants.split(",") if variants else list(opened.variants)
        made: dict[str, Calibration] = {}
        for name in names:
            variant = opened.variant(name).name
            made[variant] = _calibrate(opened, variant, n_threads, n_gpu_layers, passes, report)
    if as_json:
        click.echo(json.dumps({name: each.as_dict() for name, each in made.items()}))
        return
    _print(made)


def _calibrate(
    family: Family, variant: str, n_threads: int, n_gpu_layers: int, passes: int, report: StepProgress
) -> Calibration:
    from ...gguf.nested.nested_open import open_sibling
    from ...native.protocol import ContextParams
    from ...params import MAX_DRAFT
    from ...placement.cost.calibrate import FULL_DEPTHS, calibrate, keep, kept_path
    from ...placement.cost.measure_watts import measure_watts
    from ...placement.power.energy import EnergySampler
    from ...placement.power.meters import find_meter

    with open_sibling(family, variant, n_gpu_layers=n_gpu_layers) as model:
        n_ctx = min(model.n_ctx_train or 2048, max(FULL_DEPTHS) + 64)
        params = ContextParams(n_ctx=n_ctx, n_batch=min(512, n_ctx), max_rows=1 + MAX_DRAFT, n_threads=n_threads)
        with model.context(params) as context:
            made = calibrate(
                context, n_passes=passes, progress=lambda what, done, total: report(f"{variant}: {what}", done, total)
            )
            meter, _ = find_meter(uses_gpu=bool(n_gpu_layers))
            if meter is not None:
                with EnergySampler(meter) as sampler:
                    made = replace(made, watts=measure_watts(context, sampler))
    keep(kept_path(family.variant(variant).path, n_threads, n_gpu_layers), made)
    return made


def _print(made: dict[str, Calibration]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="ms per forward, every row with logits, near the start of a context", title_justify="left")
    table.add_column("sibling")
    for width in _SHOWN_WIDTHS:
        table.add_column(str(width), justify="right")
    table.add_column("cheap widths")
    for name, each in made.items():
        curve = each.as_target
        cheap = sorted({curve.cheapest_width(w) for w in range(1, 17) if curve.cheapest_width(w) != w})
        cells = [f"{curve.decode_s(w) * 1e3:.1f}" for w in _SHOWN_WIDTHS]
        table.add_row(name, *cells, ", ".join(map(str, cheap)) or "none")
    console = Console(highlight=False)
    console.print(table)
    known = {name: each.watts for name, each in made.items() if each.watts is not None}
    for name, watts in known.items():
        drawn = ", ".join(f"{watts.at(width):.1f} W at {width}" for width in watts.widths)
        console.print(f"{name}: {drawn}; {watts.as_draft:.1f} W while drafting ({watts.source})")
    if not known:
        console.print("no energy meter here, so no watts and no --objective energy")
