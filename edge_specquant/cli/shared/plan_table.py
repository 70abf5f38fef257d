"""A placement plan for a person: one table of models, one of reasons."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...placement.plan.plan_types import ModelPlacement, PlacementPlan
from ...units import format_bytes, format_rate
from .text import shown


def print_plan(family: str, plan: PlacementPlan) -> None:
    """Prints the plan to standard output."""
    console = Console(highlight=False)
    models = Table("", "sibling", "layers on GPU", "host", "devices", title=Text(f"{shown(family)}: {plan.mode}"))
    _add(models, "target", plan.target)
    if plan.draft is not None:
        _add(models, "draft", plan.draft)
    console.print(models)
    table = Table("decision", "choice", "because", "next best")
    for decision in plan.reasons:
        cells = (decision.topic, decision.choice, decision.reason, decision.runner_up or "")
        table.add_row(*(Text(shown(cell)) for cell in cells))
    console.print(table)
    source = "measured" if plan.is_calibrated else "estimated"
    together = ", ".join(plan.residents)
    console.print(f"{format_rate(plan.predicted_tokens_per_s)} {source}; may stay loaded together: {together}")


def _add(table: Table, role: str, placement: ModelPlacement) -> None:
    layers = {-1: "all", 0: "none"}.get(placement.n_gpu_layers, str(placement.n_gpu_layers))
    host, devices = placement.footprint.host, placement.footprint.devices
    away = " + ".join(format_bytes(device.n_total) for device in devices if device.n_total) or "none"
    table.add_row(role, Text(shown(placement.variant)), layers, format_bytes(host.n_total), away)
