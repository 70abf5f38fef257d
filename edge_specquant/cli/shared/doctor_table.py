"""A diagnosis for a person: what was found, what fits, what to improve."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...placement.machine.gpu import GpuProfile
from ...placement.plan.diagnosis import Diagnosis, FamilyReport
from ...units import format_bytes, format_rate
from .text import shown


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Prints tables and, last, the verdict."""
    console = Console(highlight=False)
    found = Table("part", "found", title="this machine", title_justify="left")
    for part, text in (*_engine(diagnosis), *_machine(diagnosis)):
        found.add_row(part, Text(shown(text)))
    console.print(found)
    fits = Table("variant", "largest usual model that fits", title="what fits", title_justify="left")
    for variant, size in diagnosis.fits.items():
        fits.add_row(variant, "none" if size is None else f"{size:g} billion parameters")
    console.print(fits)
    if diagnosis.families:
        families = Table("family", "siblings", "where", "expected", title="families", title_justify="left")
        for report in diagnosis.families:
            families.add_row(*_family(report))
        console.print(families)
        for report in diagnosis.families:
            for line in _because(report):
                console.print(Text(shown(line)))
    for sentence in diagnosis.advice:
        console.print(Text(f"improve: {shown(sentence)}"))
    mark = "ok" if diagnosis.can_chat else "not ok"
    console.print(Text(f"{mark}: {shown(diagnosis.reason)}", style="bold green" if diagnosis.can_chat else "bold red"))


def _engine(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    verdict = diagnosis.verdict
    yield "engine", (diagnosis.engine or "none").partition(";")[0]
    isa = diagnosis.profile.cpu.isa
    if isa:
        yield "built with", " ".join(isa)
    if verdict is not None:
        flags = "repacked weights on" if verdict.use_extra_bufts else "repacked weights off"
        yield "self-test", f"{'passed' if verdict.safe else 'failed'}, {flags}: {verdict.reason}"


def _machine(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    profile = diagnosis.profile
    cpu, memory = profile.cpu, profile.memory
    missing = {item.field: item.reason for item in profile.missing}
    if profile.board:
        yield "board", profile.board
    yield "processor", cpu.model or f"unknown ({missing.get('cpu.model', 'not named')})"
    yield "threads", f"{cpu.n_threads}: {cpu.threads_reason}"
    known = "unknown" if memory.n_free is None else format_bytes(memory.n_free)
    total = "" if memory.n_total is None else f" of {format_bytes(memory.n_total)}"
    yield "memory", f"{known} free{total}; {diagnosis.budget.note}"
    for gpu in profile.gpus:
        yield gpu.name, _gpu(gpu)
    if not profile.gpus:
        yield "GPU", missing.get("gpu.engine") or "none the engine can use"
    if profile.jetson:
        jetson = profile.jetson
        parts = [f"L4T {jetson.l4t}", f"JetPack {jetson.jetpack}", f"power mode {jetson.power_mode}"]
        parts += [f"{rail.name} {rail.power_w:.1f} W" for rail in jetson.rails]
        yield "Jetson", ", ".join(parts)
    if profile.power.on_mains is not None:
        battery = profile.power.battery_percent
        charge = "" if battery is None else f", battery {battery} %"
        yield "power", ("mains" if profile.power.on_mains else "battery") + charge


def _gpu(gpu: GpuProfile) -> str:
    free = "unknown" if gpu.n_free is None else format_bytes(gpu.n_free)
    memory = {"own": f"{free} free", "host": "shares the host's memory", "remote": f"{free} free, over the network"}
    parts = [gpu.description, memory[gpu.memory]]
    parts += [f"driver {gpu.driver}"] if gpu.driver else []
    parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
    parts += ["cut into MIG slices"] if gpu.mig_enabled else []
    return ", ".join(parts)


def _family(report: FamilyReport) -> tuple[Text, ...]:
    if report.plan is None:
        cells = (report.name, "—", report.problem or "", "—")
    else:
        plan = report.plan
        pair = plan.target.variant + (f" + {plan.draft.variant}" if plan.draft else "")
        source = "measured" if plan.is_calibrated else "estimated"
        rate = f"{format_rate(plan.predicted_tokens_per_s)}, {source}"
        cells = (report.name, pair, f"{plan.mode}, {plan.n_ctx} tokens", rate)
    return tuple(Text(shown(cell)) for cell in cells)


def _because(report: FamilyReport) -> Iterator[str]:
    """Why these siblings, and what came second."""
    for each in report.plan.reasons if report.plan else ():
        if each.topic in ("target", "draft"):
            second = f"; next best: {each.runner_up}" if each.runner_up else ""
            yield f"{report.name}, {each.topic} {each.choice}: {each.reason}{second}"
