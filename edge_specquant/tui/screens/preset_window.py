"""A window for the system prompt and the preset of the conversation. Gives (preset, system prompt), or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from ...errors import EdgeSpecQuantError
from ...printable import shown
from ..choosing.presets import Preset
from .ask_line import AskLine


class PresetWindow(ModalScreen["tuple[Preset, str] | None"]):
    """Choosing a preset puts its system prompt below, where it can be changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("ctrl+n", "keep", "Keep", priority=True),
    ]

    def __init__(
        self, presets: Sequence[Preset], preset: Preset, system: str, keep: Callable[[str, str], Preset]
    ) -> None:
        super().__init__()
        self._presets, self._preset, self._system, self._keep = list(presets), preset, system, keep

    def compose(self) -> ComposeResult:
        """Presets, then the system prompt."""
        with Vertical(classes="window"):
            yield Static("Preset", classes="window-title", markup=False)
            yield OptionList(*[_option(preset) for preset in self._presets], id="presets", markup=False)
            yield Static("System prompt", classes="window-title", markup=False)
            yield TextArea(self._system, id="system", soft_wrap=True)
            yield Static(
                "Enter takes a preset, Tab goes to its system prompt, Ctrl+S uses what is written, "
                "Ctrl+N keeps it as a preset of your own, Esc goes back",
                classes="window-hint",
                markup=False,
            )

    def on_mount(self) -> None:
        """The preset in use is highlighted."""
        known = self._preset in self._presets
        self.query_one(OptionList).highlighted = self._presets.index(self._preset) if known else 0
        self.query_one(OptionList).focus()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        chosen = self._presets[event.option_index]
        if chosen is not self._preset:
            self._preset = chosen
            self.query_one(TextArea).load_text(chosen.system)

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_save()

    def action_keep(self) -> None:
        """Asks for a name and keeps the system prompt under it."""
        self.app.push_screen(AskLine("Keep this system prompt as", "", "a name of your choice"), self._named)

    def _named(self, name: str | None) -> None:
        if name is None:
            return
        try:
            preset = self._keep(name.strip(), shown(self.query_one(TextArea).text.strip()))
        except (EdgeSpecQuantError, OSError) as error:
            self.notify(shown(str(error)), severity="error", markup=False)
            return
        self._presets.append(preset)
        entries = self.query_one(OptionList)
        entries.add_option(_option(preset))
        entries.highlighted = len(self._presets) - 1
        entries.focus()

    def action_save(self) -> None:
        """Gives what is chosen and written."""
        self.dismiss((self._preset, shown(self.query_one(TextArea).text.strip())))


def _option(preset: Preset) -> Option:
    return Option(Content.assemble((f"{shown(preset.name):<11} ", "bold"), (shown(preset.about), "$foreground 60%")))
