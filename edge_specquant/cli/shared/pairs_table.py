"""How the pairs of `models pairs` look on screen and as JSON. Names of files go through `rich.text.Text`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...units import format_bytes

if TYPE_CHECKING:
    from ...placement.plan.pairs import ExpectedPair


def pairs_document(family: str, pairs: Sequence[ExpectedPair]) -> dict[str, Any]:
    """For machines."""
    return {"family": family, "pairs": [asdict(pair) for pair in pairs]}


def print_pairs(family: str, pairs: Sequence[ExpectedPair]) -> None:
    """For people; every gain is an estimate, and says on what it rests."""
    console = Console(highlight=False)
    if not pairs:
        console.print(Text(f"no other family here has a smaller model of {family}'s vocabulary"))
        return
    table = Table("target", "draft", "size", "expected gain", "rests on")
    for pair in pairs:
        basis = "curves measured here" if pair.is_measured else "a roofline; calibrate both for better"
        gain = f"about {pair.gain:.2f}x, {pair.n_draft} ahead"
        table.add_row(Text(pair.target), Text(pair.draft), format_bytes(pair.n_draft_bytes), gain, basis)
    console.print(table)
    console.print(f"gains assume that {pairs[0].acceptance:.0%} of draft tokens are accepted; replies will tell")
