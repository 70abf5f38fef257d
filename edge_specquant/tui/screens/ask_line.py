"""A small window that asks for one line: a title, a path, a name. Gives the line, or None."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...printable import shown


class AskLine(ModalScreen[str | None]):
    """Enter answers, Esc does not."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        """Question, line, hint."""
        with Vertical(classes="window"):
            yield Static(shown(self._question), classes="window-title", markup=False)
            yield Input(self._value, id="line")
            yield Static(shown(self._hint) or "Enter answers, Esc goes back", classes="window-hint", markup=False)

    @on(Input.Submitted)
    def _answered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
