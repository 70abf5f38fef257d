"""`edge-specquant plan`: where the siblings of a family would go on this machine, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...placement.cost.watt_curve import Watts


@click.command()
@click.argument("family")
@click.option("--ctx", "n_ctx", type=click.IntRange(1), help="Context length in tokens (default: up to 8192).")
@click.option(
    "--objective",
    type=click.Choice(["quality", "speed", "memory", "energy"]),
    default="quality",
    show_default=True,
    help="What matters most; energy needs a meter and `calibrate`.",
)
@click.option("--target", metavar="VARIANT", help="Sibling that verifies and answers.")
@click.option("--draft", metavar="VARIANT", help="Sibling, FAMILY:SIBLING or GGUF file that drafts, or 'none'.")
@click.option("--kv", "kv_type", metavar="TYPE", help="KV cache type: f16, q8_0, q4_0 ...")
@click.option("--rpc", metavar="HOST:PORT,...", help="Use the devices of these rpc-workers too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    family: str,
    n_ctx: int | None,
    objective: str,
    target: str | None,
    draft: str | None,
    kv_type: str | None,
    rpc: str | None,
    as_json: bool,
) -> None:
    """Plan FAMILY (a name, a folder, a GGUF file, or 'demo') on this machine; loads nothing."""
    from ...config import load_settings
    from ...gguf.convert.convert import ensure_family
    from ...placement.cost.kept_curves import read_all_kept
    from ...placement.cost.sibling import siblings_of
    from ...placement.machine.this_machine import probe_here, split_endpoints
    from ...placement.plan.plan import make_plan
    from ...placement.plan.plan_types import Wish
    from ..shared.plan_table import print_plan
    from ..shared.progress import step_progress

    endpoints = split_endpoints(load_settings({"engine.rpc": rpc}).settings.engine.rpc)
    if endpoints:
        click.echo("warning: llama.cpp RPC has no authentication; use it on trusted networks only", err=True)
    with step_progress() as progress:
        opened = ensure_family(family, progress)
    wish = Wish(objective, n_ctx, target, draft, kv_type)
    siblings, hardware = siblings_of(opened, draft), probe_here(endpoints)
    kept = read_all_kept(siblings, hardware.cpu.n_threads)
    if objective == "energy":
        _require_watts(opened.name, kept.watts, [sibling.name for sibling in siblings])
    plan = make_plan(siblings, hardware, wish, kept.curves, kept.watts)
    if as_json:
        click.echo(json.dumps({"family": opened.name, **plan.as_json()}))
    else:
        print_plan(opened.name, plan)


def _require_watts(family: str, watts: Mapping[str, Watts], names: Sequence[str]) -> None:
    """Raises PlanError with what to do where nothing is known of a sibling's watts."""
    from ...errors import PlanError
    from ...placement.power.meters import find_meter

    unknown = [name for name in names if not any(key.split("@")[0] == name for key in watts)]
    if not unknown:
        return
    meter, reasons = find_meter()
    if meter is None:
        why = f"this machine has no energy meter ({'; '.join(reasons)}); try --objective speed"
    else:
        why = f"the watts of {', '.join(unknown)} were not measured yet; run edge-specquant calibrate {family}"
    raise PlanError(f"energy cannot be planned: {why}")
