"""The application: starts the engine thread and the store, passes news to the screens, keeps preferences.

Takes ChatSettings; everything heavy happens in threads, so that the first key is never waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, TextArea

from ..errors import EdgeSpecQuantError
from ..store import Store
from . import job_control, whole_pastes
from .answers.dialogue import Dialogue, RequestFields
from .answers.turns import Turns
from .choosing import choices, own_presets, preferences
from .choosing.preferences import Preferences
from .choosing.presets import PRESETS
from .engine import Engine, Opener
from .news import Counted, EngineNews, Loading, NoFamily, Ready, Trouble
from .screens.chat import ChatScreen
from .screens.conversation_screen import NARROW_CELLS, WIDE_CELLS
from .screens.keys import Keys
from .screens.welcome import Welcome
from .widgets.message_view import MessageView
from .widgets.prompt import Prompt

if TYPE_CHECKING:
    from ..placement.power.vitals import Vitals

VITALS_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """family None: the one last used. The three functions are called in threads, once the screen is up.

    looks: fields of Preferences that a settings file or the environment decides; they win over what was remembered.
    first_conversation: says which stored conversation is on show first.
    remembers: whether looks and family are written down for the next time.
    """

    opener: Opener
    open_store: Callable[[], Store]
    request_fields: RequestFields
    family: str | None = None
    system: str | None = None
    preferences_path: Path | None = None
    presets_path: Path | None = None
    looks: Mapping[str, Any] = field(default_factory=dict)
    remembers: bool = True
    first_conversation: Callable[[Store], int] | None = None
    read_vitals: Callable[[], Callable[[], Vitals]] | None = None


class ChatApp(App[None]):
    """The full-screen chat."""

    TITLE = "edge_specquant"
    CSS_PATH = "edge_specquant.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW_CELLS, "-medium"), (WIDE_CELLS, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", priority=True),
        Binding("ctrl+c", "interrupt", "Stop", show=False, system=True, priority=True),
    ]

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__()
        self._settings = settings
        self.preferences: Preferences = replace(preferences.load(settings.preferences_path), **settings.looks)
        self.chat = ChatScreen()
        self.chat.presets_path = settings.presets_path or own_presets.default_path()
        self._engine: Engine | None = None
        self._store: Store | None = None
        self._interrupted = False

    def get_driver_class(self) -> type[Driver]:
        """The terminal's driver, which reads pastes whole."""
        found = super().get_driver_class()
        whole_pastes.install()
        return found

    def get_default_screen(self) -> Screen[None]:
        """The chat is there at once; everything else comes to it."""
        return self.chat

    def on_mount(self) -> None:
        """Starts the threads."""
        job_control.keep_one_reader(self)
        if self.preferences.theme in self.available_themes:
            self.theme = self.preferences.theme
        self.theme_changed_signal.subscribe(self, lambda theme: self._remember(theme=theme.name))
        self.chat.origins = self.preferences.show_origins
        self.chat.set_class(not self.preferences.show_stats, "no-stats")
        # Heavy imports in a thread still share the interpreter: the first screen comes before them.
        self.call_after_refresh(self._start_threads)

    def _start_threads(self) -> None:
        self.chat.show_state("starting", busy=True)
        if self.preferences.theme not in self.available_themes and "theme" in self._settings.looks:
            known = ", ".join(sorted(self.available_themes))
            self.chat.complain(f"there is no theme '{self.preferences.theme}'; there are {known}", is_error=False)
        self._engine = Engine(self._settings.opener, self._post_news)
        self.run_worker(self._start, thread=True, group="start")

    def _post_news(self, news: EngineNews) -> None:
        """From the engine's thread, which may outlive the screen by a moment."""
        if self.is_running:
            self.chat.post_message(news)

    def _start(self) -> None:
        """In a thread: the store, then the family, then the gauges."""
        store, notice = self._opened_store()
        family = self._settings.family or choices.first_family(self.preferences.family)
        self.call_from_thread(self._begin, store, family)
        if notice:
            self.call_from_thread(self.chat.complain, notice, is_error=False)
        if family is None:
            self.call_from_thread(self.show_welcome, choices.all_choices())
        if self._settings.read_vitals is not None:
            self.call_from_thread(self.set_interval, VITALS_EVERY_S, self._vitals_reader(self._settings.read_vitals()))

    def _opened_store(self) -> tuple[Store, str]:
        """The store; one in memory, and why, when the file cannot be opened."""
        try:
            return self._settings.open_store(), ""
        except EdgeSpecQuantError as error:
            return Store.in_memory(), f"conversations are not kept this time: {error}"

    def _begin(self, store: Store, family: str | None) -> None:
        assert self._engine is not None
        self._store = store
        # The family goes into the engine's line before anything typed meanwhile does.
        if family is not None:
            self._open(family, False)
        self.chat.opening = family is not None
        own = own_presets.load(self.chat.presets_path)
        presets = (*PRESETS, *own.presets)
        dialogue = Dialogue(store, self._settings.request_fields, self._settings.system, presets)
        self.chat.begin(dialogue, Turns(self._engine, dialogue))
        self.chat.draw_title()
        if self._settings.first_conversation is not None:
            try:
                self.chat.open_conversation(self._settings.first_conversation(store))
            except EdgeSpecQuantError as error:
                self.chat.complain(str(error), is_error=False)
        if own.problem:
            self.chat.complain(own.problem, is_error=False)

    def _vitals_reader(self, read: Callable[[], Vitals]) -> Callable[[], None]:
        def look() -> None:
            self.chat.vitals = read()

        def start() -> None:
            self.chat.run_worker(look, thread=True, exclusive=True, group="vitals")

        return start

    # News

    @on(EngineNews)
    def _hear(self, news: EngineNews) -> None:
        if isinstance(news, Counted):
            self.chat.composing.counted(news.key, news.n_tokens)
            return
        welcome = self._welcome()
        if welcome is not None:
            if isinstance(news, Loading):
                welcome.progress(news)
            elif isinstance(news, Ready):
                welcome.dismiss(None)
            elif isinstance(news, (NoFamily, Trouble)):
                stopped = isinstance(news, NoFamily) and news.stopped
                welcome.failed(news.reason if isinstance(news, NoFamily) else news.text, stopped=stopped)
        elif isinstance(news, NoFamily):
            self.action_choose_family(news.reason)
        if isinstance(news, Ready):
            self._remember(family=news.facts.name)

    @on(Welcome.Chosen)
    def _chosen(self, chosen: Welcome.Chosen) -> None:
        self._open(chosen.source, chosen.convert)

    @on(Welcome.Stopped)
    def _stopped(self) -> None:
        if self._engine is not None:
            self._engine.cancel()

    def _open(self, family: str, convert: bool) -> None:
        assert self._engine is not None
        self.chat.opening = True
        self._engine.open(family, convert=convert)

    def _welcome(self) -> Welcome | None:
        return next((screen for screen in self.screen_stack if isinstance(screen, Welcome)), None)

    def show_welcome(self, found: list[choices.Choice], reason: str = "") -> None:
        """The welcome screen, with why the last attempt failed."""
        welcome = Welcome(found)
        self.push_screen(welcome)
        if reason:
            self.call_after_refresh(welcome.failed, reason)

    # Keys

    def action_choose_family(self, reason: str = "") -> None:
        """The list of models and other starts."""
        if self._welcome() is None:
            self.run_worker(
                lambda: self.call_from_thread(self.show_welcome, choices.all_choices(), reason),
                thread=True,
                group="choices",
            )

    def action_keys(self) -> None:
        """The window of keys."""
        self.push_screen(Keys())

    def action_focus_messages(self) -> None:
        """From the prompt to the last message."""
        views = list(self.chat.query(MessageView))
        if views:
            views[-1].focus()

    def action_focus_prompt(self) -> None:
        """From a message to the prompt."""
        self.chat.query_one(Prompt).focus()

    def action_interrupt(self) -> None:
        """Ctrl-C: copies what is selected, stops an answer, leaves a window; else asks for a second press to quit."""
        screen, selected = self.screen, self._selected_text()
        if selected:
            self.chat.message_actions.copy(selected, "selection")
        elif self.chat.running:
            self.chat.action_stop()
        elif isinstance(screen, Welcome):
            screen.action_back()
        elif isinstance(screen, ModalScreen):
            screen.dismiss(None)
        elif self._interrupted:
            self.call_later(self.action_quit)
        else:
            self._interrupted = True
            self.set_timer(3.0, self._forget_interrupt)
            self.notify("press Ctrl+C again to quit", timeout=3, markup=False)

    def _selected_text(self) -> str:
        """What is marked, in the line or area that has the keyboard, or anywhere with the mouse."""
        focused = self.focused
        marked = focused.selected_text if isinstance(focused, (Input, TextArea)) else ""
        return marked or self.screen.get_selected_text() or ""

    def _forget_interrupt(self) -> None:
        self._interrupted = False

    async def action_quit(self) -> None:
        """Keeps what an unfinished answer has, stops the engine, leaves. Well under a second."""
        if self.chat.has_begun:
            self.chat.turns.abandon()
        self._remember(show_stats=not self.chat.has_class("no-stats"), show_origins=self.chat.origins)
        self.exit()

    def get_key_display(self, binding: Binding) -> str:
        """'^L' and 'Esc': a lower-case l is not to be told from a one. Letters alone stay as they are pressed."""
        shown = super().get_key_display(binding)
        return shown.upper() if shown.startswith("^") else shown.capitalize() if len(shown) > 1 else shown

    def release(self) -> None:
        """For after `run`, however it ended: keeps what came of an answer, ends the engine, closes the store."""
        if self.chat.has_begun:
            self.chat.turns.abandon()
        if self._engine is not None:
            self._engine.close()
        if self._store is not None:
            self._store.close()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What the palette offers beside Textual's own."""
        chat = self.chat
        yield SystemCommand("New conversation", "Start over", chat.action_new)
        yield SystemCommand("Conversations", "List, search, rename, pin, delete, export", chat.action_conversations)
        yield SystemCommand("Regenerate", "Another version of the last answer", chat.action_regenerate)
        yield SystemCommand("Go on", "Continue an answer that was cut", chat.action_go_on)
        yield SystemCommand("Redo precisely", "Verify the answer with the most precise sibling", chat.action_redo)
        yield SystemCommand("Branches", "Every version of every message", chat.action_branches)
        yield SystemCommand("Token colours", "Who wrote each token", chat.action_origins)
        yield SystemCommand("Figures", "Show or hide the side panel", chat.action_stats)
        yield SystemCommand("Attach a file", "A text file for the next message", chat.action_attach)
        yield SystemCommand("Preset and system prompt", "How the model should answer", chat.action_preset)
        yield SystemCommand("Model", "Another family, the demo, a path", self.action_choose_family)
        yield SystemCommand("All keys", "One page", self.action_keys)
        yield from super().get_system_commands(screen)

    def _remember(self, **changes: Any) -> None:
        changed = replace(self.preferences, **changes)
        if changed != self.preferences:
            self.preferences = changed
            if self._settings.remembers:
                preferences.save(changed, self._settings.preferences_path)
