"""The side panel: the machinery at work. Draws sections of figures and one sparkline."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Sparkline, Static

from ...printable import shown
from ..figures import Section
from .origin_text import LEGEND

_LABEL_CELLS = 16


class StatsPanel(VerticalScroll, can_focus=False):
    """Figures, top to bottom."""

    DEFAULT_CSS = """
    StatsPanel { width: 36; max-width: 50%; padding: 1 1 0 2; background: $surface;
                 border-left: vkey $surface-lighten-1; }
    StatsPanel > Static { height: auto; }
    StatsPanel > #rounds-title { color: $text-accent; text-style: bold; margin-top: 1; }
    StatsPanel > Sparkline { height: 2; margin: 0 1 0 0; }
    StatsPanel > Sparkline > .sparkline--max-color { color: $success; }
    StatsPanel > Sparkline > .sparkline--min-color { color: $success 50%; }
    StatsPanel > #legend { margin-top: 1; display: none; }
    StatsPanel.origins > #legend { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: tuple[tuple[Section, ...], tuple[float, ...]] | None = None

    def compose(self) -> ComposeResult:
        """Figures, the sparkline, the legend of colours."""
        yield Static("", id="figures", markup=False)
        yield Static("accepted by round", id="rounds-title", markup=False)
        yield Sparkline([], summary_function=max, id="rounds")
        yield Static(LEGEND, id="legend")

    def show(self, sections: Sequence[Section], rounds: Sequence[float]) -> None:
        """Draws anew, if anything changed: over a slow line an idle screen is silent."""
        drawn = (tuple(sections), tuple(rounds))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.query_one("#figures", Static).update(_content(sections))
        has_rounds = any(rounds)
        self.query_one("#rounds-title").display = has_rounds
        sparkline = self.query_one(Sparkline)
        sparkline.display = has_rounds
        sparkline.data = list(rounds)


def _content(sections: Sequence[Section]) -> Content:
    parts: list[Content | str | tuple[str, str]] = []
    for i, section in enumerate(sections):
        parts.append((("\n" if i else "") + section.title + "\n", "bold $text-accent"))
        for label, value in section.rows:
            if label:
                parts.append((f"{shown(label):<{_LABEL_CELLS}}", "$foreground 60%"))
            parts.append(shown(value) + "\n")
    return Content.assemble(*parts)
