"""A reply as plain text, each piece in the colour of who wrote it: target, draft, lookup, or agreed (a redo).

Grows by adding to its last block only, so the cost of a token does not depend on the length of the reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ..answers.reply import Run

BLOCK_CHARS = 800
STYLES = {
    "target": "$foreground",
    "draft": "$text-success",
    "lookup": "$text-warning",
    "agreed": "$text-accent",
    "mark": "bold $text-error",
}
DEPARTS = ("mark", "▸")
LEGEND = Content.assemble(
    ("■ target ", STYLES["target"]),
    ("■ draft ", STYLES["draft"]),
    ("■ lookup\n", STYLES["lookup"]),
    ("■ kept by a redo, up to ▸", STYLES["agreed"]),
)


class OriginText(Vertical):
    """Blocks of coloured text."""

    DEFAULT_CSS = """
    OriginText { height: auto; padding: 0 2; }
    OriginText > Static { height: auto; width: 1fr; }
    """

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        super().__init__()
        self._blocks = _in_blocks(runs)
        self._last = Static(_content(self._blocks[-1]))

    def compose(self) -> ComposeResult:
        """One Static a block."""
        for block in self._blocks[:-1]:
            yield Static(_content(block))
        yield self._last

    async def write(self, runs: Sequence[Run]) -> None:
        """Adds pieces at the end."""
        first, *more = _in_blocks([*self._blocks[-1], *runs])
        self._blocks[-1] = first
        self._last.update(_content(first))
        for block in more:
            self._blocks.append(block)
            self._last = Static(_content(block))
            await self.mount(self._last)

    @property
    def plain(self) -> str:
        """The text on show."""
        return "".join(text for block in self._blocks for _, text in block)


def with_departure(runs: Sequence[Run]) -> list[Run]:
    """The runs of a redo, with a mark where the judge departs from the earlier answer."""
    kinds = [kind for kind, _ in runs]
    n_kept = next((i for i, kind in enumerate(kinds) if kind != "agreed"), len(kinds))
    return [*runs[:n_kept], *([DEPARTS] if n_kept < len(kinds) else []), *runs[n_kept:]]


def _in_blocks(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs cut into blocks at line ends, each of about BLOCK_CHARS; the line end itself is where a block ends."""
    blocks: list[list[Run]] = [[]]
    n_chars = 0
    for kind, text in runs:
        while text:
            cut = text.find("\n", max(0, BLOCK_CHARS - n_chars)) if n_chars + len(text) > BLOCK_CHARS else -1
            piece, text = (text, "") if cut < 0 else (text[: cut + 1], text[cut + 1 :])
            blocks[-1].append((kind, piece))
            n_chars += len(piece)
            if cut >= 0:
                blocks.append([])
                n_chars = 0
    return blocks


def _content(block: Sequence[Run]) -> Content:
    *head, last = [(text, STYLES[kind]) for kind, text in block] or [("", "")]
    return Content.assemble(*head, (last[0].removesuffix("\n"), last[1]))
