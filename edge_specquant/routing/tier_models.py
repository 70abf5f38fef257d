"""Which siblings can stand in for which: the plan's models, and the mapping of a tier onto them.

Takes wanted variants and what there is; gives variants that exist, with a reason for each change. Knows no prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LOOKUP, NONE = "lookup", "none"
_BITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Available:
    """What a plan holds. variants: all it may use; residents: those in memory; max_residents: how many at once."""

    variants: tuple[str, ...]
    residents: tuple[str, ...] = ()
    max_residents: int | None = None

    def pool(self, residents_only: bool) -> tuple[str, ...]:
        """The variants a policy may choose from; with nothing resident yet, all of them."""
        return self.residents if residents_only and self.residents else self.variants


def as_available(given: Available | Iterable[str]) -> Available:
    """Plain names mean: all of these may be used."""
    return given if isinstance(given, Available) else Available(tuple(given))


def precision(variant: str) -> int:
    """Bits a weight by the variant's name ("q4" is 4, "bf16" is 16); 0 when the name tells none."""
    found = _BITS.search(variant)
    return int(found.group(1)) if found else 0


def map_target(wanted: str, pool: tuple[str, ...]) -> tuple[str, str | None]:
    """(variant, reason): the wanted one, else the next more precise, else the most precise there is."""
    if wanted in pool:
        return wanted, None
    above = [name for name in pool if precision(name) >= precision(wanted)]
    chosen = min(above, key=precision) if above else max(pool, key=precision)
    return chosen, f"{wanted} is not in the plan; {chosen} stands in for it"


def map_draft(wanted: str, target: str, pool: tuple[str, ...], max_residents: int | None) -> tuple[str, list[str]]:
    """(draft, reasons): each part of a chain kept, replaced by the next cheaper sibling, or dropped."""
    parts: list[str] = []
    reasons: list[str] = []
    for part in wanted.split("+"):
        kept, reason = _map_part(part, target, pool, max_residents)
        if kept and kept not in parts:
            parts.append(kept)
        if reason:
            reasons.append(reason)
    return "+".join(parts) or NONE, reasons


def _map_part(
    part: str, target: str, pool: tuple[str, ...], max_residents: int | None
) -> tuple[str | None, str | None]:
    if part == NONE:
        return None, None
    if part == LOOKUP:
        return part, None
    if max_residents is not None and max_residents < 2:
        return None, f"the plan holds one model at a time; no {part} draft"
    cheaper = [name for name in pool if precision(name) < precision(target)]
    if part in cheaper:
        return part, None
    if not cheaper:
        return None, f"no sibling cheaper than {target} is in the plan; no {part} draft"
    chosen = min(cheaper, key=lambda name: abs(precision(name) - precision(part)))
    missing = "is not in the plan" if part not in pool else f"is not cheaper than {target}"
    return chosen, f"{part} {missing}; {chosen} drafts instead"
