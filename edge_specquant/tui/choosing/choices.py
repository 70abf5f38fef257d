"""What a person can start with on this machine: families that are there, the demo, the catalogue, a path.

Reads folders; downloads nothing, so being offline is normal.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import EdgeSpecQuantError
from ...units import format_bytes


@dataclass(frozen=True, slots=True)
class Choice:
    """source is what the engine opens; convert says that siblings are made first; an empty source asks for a path."""

    title: str
    about: str
    source: str
    convert: bool = False


PATH = Choice("A file or folder of yours", "a GGUF file or a Hugging Face checkpoint folder", "", convert=True)


def families() -> list[Choice]:
    """The families on this machine that can be opened."""
    from ...gguf.family.family import Family, family_names

    found = []
    for name in family_names():
        try:
            variants = Family.open(name).variants.values()
        except EdgeSpecQuantError:
            continue  # `models list` names broken ones with their reasons
        n_bytes = sum(variant.n_bytes for variant in variants)
        found.append(Choice(name, f"{', '.join(v.name for v in variants)}, {format_bytes(n_bytes)}", name))
    return found


def demo() -> list[Choice]:
    """The embedded demo, unless it is a family already or its package is not installed."""
    from ...gguf.convert.convert import DEMO, demo_file, open_source, plan_conversion
    from ...gguf.family.family import family_names

    if DEMO in family_names():
        return []
    try:
        size = demo_file().stat().st_size
        n_bytes = plan_conversion(open_source(DEMO), DEMO).n_bytes
    except EdgeSpecQuantError:
        return []
    about = f"SmolLM2 135M Instruct, Apache-2.0, here already ({format_bytes(size)}); makes {format_bytes(n_bytes)}"
    return [Choice("The demo", about, DEMO, convert=True)]


def catalogue() -> list[Choice]:
    """Known checkpoints that fit this machine; choosing one downloads it."""
    from ...placement.machine.hardware import probe
    from .catalog import entries, find_file

    machine = probe()
    limits = [n for n in (machine.memory.n_total, machine.memory.n_limit) if n]
    found = entries(find_file(), min(limits, default=None), machine.host_bandwidth.bytes_per_s)
    return [Choice(entry.hub, "download: " + entry.about(), entry.hub, convert=True) for entry in found]


def all_choices() -> list[Choice]:
    """Everything, in the order of the welcome screen."""
    return [*families(), *demo(), PATH, *catalogue()]


def first_family(last_used: str) -> str | None:
    """The family to open when none was named: the one last used, else the only order there is, else None."""
    from ...gguf.family.family import family_names

    names = list(family_names())
    return last_used if last_used in names else next(iter(names), None)
