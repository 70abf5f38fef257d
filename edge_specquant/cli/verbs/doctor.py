"""`edge-specquant doctor`: is the engine sound, what is here, what fits, what could be better."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...placement.cost.cost_curve import CostCurve
    from ...placement.cost.sibling import Sibling
    from ...placement.plan.diagnosis import Diagnosis


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--rpc", metavar="HOST:PORT,...", help="Look at these workers too.")
@click.option("--certify", metavar="FAMILY", help="Instead: which batch widths compute the same bits, per sibling.")
def command(as_json: bool, rpc: str | None, certify: str | None) -> None:
    """Check this machine. The exit code is 0 only when a chat would work."""
    if certify is not None:
        from ..shared.certify import certify_family

        sys.exit(0 if certify_family(certify, as_json) else 1)
    from ..shared.doctor_table import print_diagnosis

    diagnosis = examine(rpc)
    if as_json:
        click.echo(json.dumps(diagnosis.as_json()))
    else:
        print_diagnosis(diagnosis)
    sys.exit(0 if diagnosis.can_chat else 1)


def examine(rpc: str | None = None) -> Diagnosis:
    """Gathers everything: self-test first (in a child process), the engine's libraries only if it passed."""
    from ...errors import EngineMissingError
    from ...native.library.library import build_id
    from ...native.selftest.selftest import verdict
    from ...placement.cost.kept_curves import read_all_kept
    from ...placement.machine.this_machine import probe_here, split_endpoints
    from ...placement.plan.diagnosis import diagnose

    found = build = problem = None
    try:
        found = verdict()
        build = build_id() if found.safe else None
    except EngineMissingError as error:
        problem = str(error)
    safe = found is not None and found.safe
    profile = probe_here(split_endpoints(rpc) if safe else (), ask_engine=safe)

    def curves(siblings: Sequence[Sibling]) -> Mapping[str, CostCurve]:
        return read_all_kept(siblings, profile.cpu.n_threads).curves if build is not None else {}

    return diagnose(profile, found, build, _siblings(), problem, curves)


def _siblings() -> dict[str, Sequence[Sibling] | str]:
    """Siblings of every family, or why a family cannot be opened; the demo counts although it is not made yet."""
    from ...errors import EdgeSpecQuantError
    from ...gguf.convert.convert import DEMO, demo_file
    from ...gguf.family.family import Family, family_names
    from ...placement.cost.sibling import siblings_of

    found: dict[str, Sequence[Sibling] | str] = {}
    for name in family_names():
        try:
            found[name] = siblings_of(Family.open(name))
        except EdgeSpecQuantError as error:
            found[name] = str(error)
    if DEMO not in found:
        try:
            found[DEMO] = siblings_of(Family.open(demo_file()))
        except EdgeSpecQuantError as error:
            if found:
                return found
            found[DEMO] = str(error)
    return found
