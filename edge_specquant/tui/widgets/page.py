"""A finished stretch of an answer as one widget: the lines that its Markdown showed, kept.

A layout visits every widget, and Markdown makes a dozen of a list; so only what grows stays Markdown. A page that has
no lines yet, or lines for another width or theme, shows what it has and says so when it is looked at (`Unread`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import Compositor
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

Code = tuple[range, str]
"""(lines, what a click on them copies)."""


class CodeClicked(Message):
    """Somebody clicked a code block; `code` is what of it was under the mouse."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code


class LinkClicked(Message):
    """Somebody clicked a link."""

    def __init__(self, href: str) -> None:
        super().__init__()
        self.href = href


@dataclass(frozen=True, slots=True)
class Pressed:
    """Lines of `width` cells, without the background that they share."""

    width: int
    lines: tuple[Strip, ...]
    codes: tuple[Code, ...]


def press(widget: Widget, codes: Mapping[Widget, str]) -> Pressed | None:
    """The lines of a widget with all its children, as they are on show; None while they are not laid out.

    codes: what a click on a child copies.
    """
    size = widget.outer_size
    if not size or not widget.is_attached:
        return None
    compositor = Compositor()
    compositor.reflow(widget, size)
    places = compositor.full_map
    for child in widget.walk_children(Widget):
        if child.display and (child not in places or places[child].region.size != child.outer_size):
            return None
    background = widget.background_colors[1].rich_color
    lines = tuple(Strip(_bare(strip, background), size.width).simplify() for strip in compositor.render_strips())
    return Pressed(size.width, lines, tuple((places[child].region.line_range, code) for child, code in codes.items()))


@dataclass(frozen=True, slots=True)
class Sheet:
    """A stretch of text and its lines; none before it was ever drawn."""

    text: str
    pressed: Pressed | None = None


class Page(Static):
    """Text that grows no more, in one or more sheets; only pressed ones share a page."""

    DEFAULT_CSS = """
    Page { height: auto; width: 1fr; }
    Page.unread { padding: 0 2 1 2; }
    """

    class Unread(Message):
        """Somebody looks at a page whose lines are not those of its Markdown."""

        def __init__(self, page: Page) -> None:
            super().__init__()
            self.page = page

    def __init__(self, sheet: Sheet, *, is_stale: bool = False) -> None:
        super().__init__(sheet.text.rstrip("\n"), markup=False, classes="" if sheet.pressed else "unread")
        self.sheets = [sheet]
        self._lines: list[Strip] = list(sheet.pressed.lines) if sheet.pressed else []
        self._width = sheet.pressed.width if sheet.pressed else 0
        self._ground = Style()
        self._is_stale, self._asked = is_stale or sheet.pressed is None, False

    def on_mount(self) -> None:
        """Colours are in the lines, so another theme wants other lines."""
        self.app.theme_changed_signal.subscribe(self, self._theme_changed)

    def takes(self, sheet: Sheet) -> bool:
        """Whether the sheet can follow on the same page."""
        return not self._is_stale and sheet.pressed is not None and sheet.pressed.width == self._width

    def add(self, sheet: Sheet) -> None:
        """The sheet below the others."""
        assert sheet.pressed is not None
        self.sheets.append(sheet)
        self._lines += sheet.pressed.lines
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there are."""
        return len(self._lines) or super().get_content_height(container, viewport, width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Called for what can be seen only."""
        if not self._asked and (self._is_stale or self._width != self.outer_size.width):
            self._asked = True
            self.post_message(self.Unread(self))
        ground = Style.from_color(bgcolor=self.background_colors[1].rich_color)
        if ground != self._ground:  # the message got or lost the keyboard
            self._ground = ground
            self._styles_cache.clear()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One line, with what is selected of it."""
        if not self._lines:
            return super().render_line(y)
        if y >= len(self._lines):
            return Strip.blank(self.size.width)
        line, selection = self._lines[y], self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is not None:
            line = _marked(line, *span, self.screen.get_component_rich_style("screen--selection"))
        return line.apply_style(self._ground).apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without the blanks at line ends."""
        if not self._lines:
            return super().get_selection(selection)
        text = selection.extract("\n".join(line.text for line in self._lines))
        return "\n".join(line.rstrip() for line in text.split("\n")), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Drawn anew."""
        del selection
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """A click on a code block copies it."""
        top = 0
        for sheet in self.sheets:
            for lines, code in sheet.pressed.codes if sheet.pressed else ():
                if event.y - top in lines:
                    self.post_message(CodeClicked(code))
            top += len(sheet.pressed.lines) if sheet.pressed else 0

    def action_link(self, href: str) -> None:
        """What a link in the lines calls."""
        self.post_message(LinkClicked(href))

    def _theme_changed(self, theme: object) -> None:
        del theme
        self._is_stale = True
        self.refresh()


def _bare(strip: Strip, background: object) -> Iterator[Segment]:
    """Without the background, which the page has itself, and places in widgets that will be gone."""
    for text, style, _ in strip:
        yield Segment(text, style and _bare_style(style, background))


def _bare_style(style: Style, background: object) -> Style:
    meta = {name: value for name, value in style.meta.items() if name != "offset"}
    return Style(
        color=style.color,
        bgcolor=None if style.bgcolor == background else style.bgcolor,
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        reverse=style.reverse,
        strike=style.strike,
        link=style.link,
        meta=meta or None,
    )


def _marked(line: Strip, start: int, end: int, style: Style) -> Strip:
    """The line with the characters from start to end (-1: its end) marked."""
    text = line.text
    cuts = [cell_len(text[:start]), cell_len(text) if end < 0 else cell_len(text[:end]), line.cell_length]
    before, inside, after = (*line.divide(cuts), Strip([]), Strip([]))[:3]
    marked = Strip([Segment(each.text, (each.style or Style()) + style) for each in inside])
    return Strip.join([before, marked, after])
