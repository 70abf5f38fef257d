"""The first screen when there is no model yet, and the place to choose another: a list, and progress once chosen.

Gives the choice through `Chosen`; the app opens it and reports progress back here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from ...printable import shown
from ..choosing.choices import Choice
from ..news import Loading
from .ask_line import AskLine

GREETING = (
    "One checkpoint becomes a family of siblings: a precise one that answers, and small ones that draft for it. "
    "Choose what to start with; nothing leaves this machine."
)


class Welcome(ModalScreen[None]):
    """Choices first, then the progress of the one chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Stop or go back")]

    class Chosen(Message):
        """Somebody chose."""

        def __init__(self, source: str, convert: bool) -> None:
            super().__init__()
            self.source, self.convert = source, convert

    class Stopped(Message):
        """Somebody stopped the work under way."""

    def __init__(self, choices: Sequence[Choice] = (), *, working: bool = False) -> None:
        super().__init__()
        self.choices = list(choices)
        self._working = working

    def compose(self) -> ComposeResult:
        """Greeting, list, progress."""
        with Vertical(classes="window"):
            yield Static("edge_specquant", classes="window-title", markup=False)
            yield Static(GREETING, id="greeting", markup=False)
            yield OptionList(id="choices", markup=False)
            yield Static("", id="step", markup=False)
            yield ProgressBar(id="progress", show_eta=False)
            yield Static("", id="problem", markup=False)
            yield Static("", classes="window-hint", id="hint", markup=False)

    def on_mount(self) -> None:
        """Draws what there is."""
        self.set_choices(self.choices)
        self._set_working(self._working)

    def set_choices(self, choices: Sequence[Choice]) -> None:
        """Another list."""
        self.choices = list(choices)
        entries = self.query_one(OptionList)
        entries.clear_options()
        entries.add_options([_option(choice) for choice in self.choices])
        entries.highlighted = 0 if self.choices else None
        if not self._working:
            entries.focus()

    def progress(self, news: Loading) -> None:
        """A step of the work."""
        self._set_working(True)
        self.query_one("#step", Static).update(shown(news.step))
        bar = self.query_one(ProgressBar)
        bar.update(total=news.total or None, progress=news.done)

    def failed(self, reason: str, *, stopped: bool = False) -> None:
        """The work ended without a model; the list is back."""
        self._set_working(False)
        self._say(reason)
        self.query_one("#problem").set_class(stopped, "notice")
        self.query_one(OptionList).focus()

    def action_back(self) -> None:
        """Stops the work under way, else goes back to the chat."""
        if self._working:
            self.query_one("#step", Static).update("stopping")
            self.post_message(self.Stopped())
        else:
            self.dismiss(None)

    @on(OptionList.OptionSelected, "#choices")
    def _selected(self, event: OptionList.OptionSelected) -> None:
        choice = self.choices[event.option_index]
        if choice.source:
            self._choose(choice.source, choice.convert)
        else:
            self.app.push_screen(AskLine("Which file or folder?", "", choice.about), self._path_given)

    def _path_given(self, path: str | None) -> None:
        if path and path.strip():
            self._choose(path.strip(), True)

    def _choose(self, source: str, convert: bool) -> None:
        self._say("")
        self._set_working(True)
        self.post_message(self.Chosen(source, convert))

    def _say(self, problem: str) -> None:
        line = self.query_one("#problem", Static)
        line.update(shown(problem))
        line.display = bool(problem)

    def _set_working(self, working: bool) -> None:
        self._working = working
        self.query_one(OptionList).display = not working
        self.query_one("#step").display = working
        self.query_one(ProgressBar).display = working
        hint = "Esc stops; what is finished is kept" if working else "Enter chooses, Esc goes to the chat"
        self.query_one("#hint", Static).update(hint)


def _option(choice: Choice) -> Option:
    return Option(Content.assemble((shown(choice.title), "bold"), ("\n" + shown(choice.about), "$foreground 60%")))
