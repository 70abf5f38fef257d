"""How a chat template looks on screen: what it can do, and a conversation as tokens. Texts are shown verbatim."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...engine.prompts.features import Features
from ...engine.prompts.spelling import VOCABULARY, Spelled
from ...printable import shown

_MARKER, _OWN, _FIXED = "bold yellow", "cyan", "dim"
_CALLERS = ("green", "magenta", "blue", "red")
_BETWEEN = "│"


def print_template(
    features: Features, notice: str | None, tokens: Sequence[Spelled], thinks: str | None = None
) -> None:
    """The features in lines, then the tokens by origin; between two of them stands a bar. thinks: how, in words."""
    console = Console(highlight=False)
    if notice:
        console.print(Text(f"note: {notice}; a stand-in is used"), soft_wrap=True)
    for name, value in _lines(features, thinks):
        console.print(Text.assemble((f"{name:<14}", "bold"), shown(value)), soft_wrap=True)
    table = Table(show_header=True, box=None, padding=(0, 2, 0, 0))
    table.add_column("written by", no_wrap=True)
    table.add_column("tokens")
    colours = _colours(tokens)
    for origin, group in groupby(tokens, key=lambda token: token.origin):
        row = Text(_BETWEEN, style=_FIXED).join(
            Text(shown(token.text).replace("\n", "⏎"), style=_MARKER if token.is_marker else colours[origin])
            for token in group
        )
        table.add_row(Text(shown(origin or "template"), style=colours[origin]), row)
    console.print(table)
    n_markers = sum(token.is_marker for token in tokens)
    console.print(
        Text(f"{len(tokens)} tokens, {n_markers} of them control tokens or tags, all written by the template")
    )


def _lines(features: Features, thinks: str | None) -> list[tuple[str, str]]:
    def word(has: bool) -> str:
        return "yes" if has else "no"

    own = f"own text: {features.own_system!r}" if features.own_system else "no text of its own"
    tools = {"described": features.tools, "calls": features.tool_calls, "results": features.tool_results}
    known = [name for name, has in tools.items() if has]
    return [
        ("templates", ", ".join(features.names)),
        ("system role", f"{word(features.system_role)}; {own}"),
        ("alternation", "user and assistant must take turns" if features.alternates else "free"),
        ("tools", ", ".join(known) if known else "no; the server describes them in the system text"),
        ("parts", word(features.parts)),
        ("thinks", thinks or ("takes thoughts back" if features.thoughts else "no thoughts in the history")),
    ]


def _colours(tokens: Sequence[Spelled]) -> dict[str | None, str]:
    """Callers in turn, by the message that they wrote."""
    heads = dict.fromkeys(
        (token.origin or "").partition(".")[0] for token in tokens if token.origin not in (None, VOCABULARY)
    )
    by_head = {head: _CALLERS[i % len(_CALLERS)] for i, head in enumerate(heads)}
    fixed: dict[str | None, str] = {None: _OWN, VOCABULARY: _FIXED}
    return {
        token.origin: fixed.get(token.origin) or by_head[(token.origin or "").partition(".")[0]] for token in tokens
    }
