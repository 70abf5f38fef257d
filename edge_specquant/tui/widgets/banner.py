"""A line or two across the screen: what went wrong and the one key that goes on."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ...printable import shown

CHOOSE = "F3 chooses a model"


class Banner(Static):
    """Hidden until there is something to say."""

    DEFAULT_CSS = """
    Banner { height: auto; max-height: 6; padding: 0 2; display: none; background: $error 25%; color: $text; }
    Banner.shown { display: block; }
    Banner.notice { background: $warning 20%; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False, id="banner")
        self._way_on = ""

    def say(self, text: str, way_on: str = "", *, is_error: bool = True) -> None:
        """Shows a text, verbatim, and what to press."""
        parts: list[str | tuple[str, str]] = [shown(text)]
        if way_on:
            parts.append((f"  {way_on}", "bold"))
        self.update(Content.assemble(*parts))
        self._way_on = way_on
        self.set_class(not is_error, "notice")
        self.add_class("shown")

    def clear(self) -> None:
        """Nothing to say any more."""
        self.remove_class("shown")

    def model_is_there(self) -> None:
        """Takes away what only the lack of a model made worth saying; another notice stays."""
        if self._way_on == CHOOSE:
            self.clear()
