"""A window for the system prompt and the preset of the conversation. Gives (preset, system prompt), or None."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from ...printable import shown
from ..presets import PRESETS, Preset


class PresetWindow(ModalScreen["tuple[Preset, str] | None"]):
    """Choosing a preset puts its system prompt below, where it can be changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("ctrl+s", "save", "Save", priority=True),
    ]

    def __init__(self, preset: Preset, system: str) -> None:
        super().__init__()
        self._preset, self._system = preset, system

    def compose(self) -> ComposeResult:
        """Presets, then the system prompt."""
        with Vertical(classes="window"):
            yield Static("Preset", classes="window-title", markup=False)
            yield OptionList(*[_option(preset) for preset in PRESETS], id="presets", markup=False)
            yield Static("System prompt", classes="window-title", markup=False)
            yield TextArea(self._system, id="system", soft_wrap=True)
            yield Static(
                "Enter takes a preset, Tab goes to the system prompt, Ctrl+S saves, Esc goes back",
                classes="window-hint",
                markup=False,
            )

    def on_mount(self) -> None:
        """The preset in use is highlighted."""
        self.query_one(OptionList).highlighted = PRESETS.index(self._preset) if self._preset in PRESETS else 0
        self.query_one(OptionList).focus()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        chosen = PRESETS[event.option_index]
        if chosen is not self._preset:
            self._preset = chosen
            self.query_one(TextArea).load_text(chosen.system)

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        """Gives what is chosen and written."""
        self.dismiss((self._preset, shown(self.query_one(TextArea).text.strip())))


def _option(preset: Preset) -> Option:
    return Option(Content.assemble((f"{preset.name:<11}", "bold"), (preset.about, "$foreground 60%")))
