"""The side panel: the machinery at work. Draws sections of figures and one sparkline."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Sparkline, Static

from ...printable import shown
from ..panel_figures import Rounds, Section
from .origin_text import LEGEND

ROUNDS = (("drafted", "n_draft, round by round"), ("accepted", "accepted of it"))
_LABEL_CELLS = 16


class StatsPanel(VerticalScroll, can_focus=False):
    """Figures, top to bottom."""

    DEFAULT_CSS = """
    StatsPanel { width: 36; max-width: 50%; padding: 1 1 0 2; background: $surface;
                 border-left: vkey $surface-lighten-1; }
    StatsPanel > Static { height: auto; }
    StatsPanel > .rounds-title { color: $foreground 60%; margin-top: 1; }
    StatsPanel > Sparkline { height: 2; margin: 0 1 0 0; }
    StatsPanel > #drafted > .sparkline--max-color { color: $primary; }
    StatsPanel > #drafted > .sparkline--min-color { color: $primary 50%; }
    StatsPanel > #accepted > .sparkline--max-color { color: $success; }
    StatsPanel > #accepted > .sparkline--min-color { color: $success 50%; }
    StatsPanel > #legend { margin-top: 1; display: none; }
    StatsPanel.origins > #legend { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: tuple[tuple[Section, ...], Rounds] | None = None

    def compose(self) -> ComposeResult:
        """Figures, the sparklines, the legend of colours."""
        yield Static("", id="figures", markup=False)
        for name, title in ROUNDS:
            yield Static(title, classes="rounds-title", markup=False)
            yield Sparkline([], summary_function=max, id=name)
        yield Static(LEGEND, id="legend")

    def show(self, sections: Sequence[Section], rounds: Rounds) -> None:
        """Draws anew, if anything changed: over a slow line an idle screen is silent."""
        drawn = (tuple(sections), rounds)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.query_one("#figures", Static).update(_content(sections))
        self.query(".rounds-title").set(display=bool(rounds.drafted))
        for name, values in (("drafted", rounds.drafted), ("accepted", rounds.accepted)):
            sparkline = self.query_one(f"#{name}", Sparkline)
            sparkline.display = bool(rounds.drafted)
            sparkline.data = list(values)


def _content(sections: Sequence[Section]) -> Content:
    parts: list[Content | str | tuple[str, str]] = []
    for i, section in enumerate(sections):
        parts.append((("\n" if i else "") + section.title + "\n", "bold $text-accent"))
        for label, value in section.rows:
            if label:
                parts.append((f"{shown(label):<{_LABEL_CELLS}}", "$foreground 60%"))
            parts.append(shown(value) + "\n")
    return Content.assemble(*parts)
