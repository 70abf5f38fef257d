"""Which models of other families can draft for the siblings of one, and what that is expected to gain here.

Takes a family, reads headers and kept curves, probes the machine; gives Expected gains. Loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...gguf.family.family import Family
from ...gguf.family.guests import pairs_for
from ..cost.footprint import ContextShape, footprint
from ..cost.kept_curves import read_all_kept
from ..cost.roofline import CostCurve, alone, curve_for, paired, roofline
from ..cost.sibling import Sibling, expected_acceptance, siblings_of
from ..machine.hardware import HardwareProfile
from ..machine.this_machine import probe_here

_N_CTX = 4096


@dataclass(frozen=True, slots=True)
class ExpectedPair:
    """gain: tokens per second with the draft over without, at the acceptance assumed of strangers.

    is_measured: both cost curves were measured here; else the roofline estimates at least one.
    """

    target: str
    draft: str
    n_draft_bytes: int
    gain: float
    acceptance: float
    n_draft: int
    is_measured: bool


def expected_pairs(family: Family) -> list[ExpectedPair]:
    """Every pair, the target with most bits first, its best draft first. Raises GGUFError."""
    hardware = probe_here()
    found: list[ExpectedPair] = []
    for target in siblings_of(family):
        guests = [Sibling(pair.guest.name, pair.card, is_guest=True) for pair in pairs_for(target.card, family)]
        found += sorted((_expected(target, each, hardware) for each in guests), key=lambda pair: -pair.gain)
    return found


def _expected(target: Sibling, draft: Sibling, hardware: HardwareProfile) -> ExpectedPair:
    (target_s, knows_target), (draft_s, knows_draft) = _curve(target, hardware), _curve(draft, hardware)
    acceptance = expected_acceptance(target, draft)
    best = paired(target_s, draft_s, acceptance)
    gain = best.tokens_per_s / alone(target_s).tokens_per_s
    return ExpectedPair(
        target.name, draft.name, draft.n_bytes, gain, acceptance, best.n_draft, knows_target and knows_draft
    )


def _curve(sibling: Sibling, hardware: HardwareProfile) -> tuple[CostCurve, bool]:
    """On the CPU: measured, else estimated."""
    split = footprint(sibling.card, ContextShape(_N_CTX, "f16", "f16"), n_gpu_layers=0)
    estimate = roofline(
        hardware, split, n_decode_bytes=sibling.n_decode_bytes, n_parameters=sibling.n_parameters, n_ctx=_N_CTX
    )
    return curve_for(read_all_kept((sibling,), hardware.cpu.n_threads).curves, sibling.name, 0, estimate)
