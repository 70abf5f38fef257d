"""The chat: messages, prompt, and around them the conversations, the figures, and one line of state.

Draws what Turns and Dialogue say and turns keys into their calls. What the engine thread reports is posted to this
screen and goes on to the app. Decides nothing about tokens.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Markdown, Static

from ...errors import EdgeSpecQuantError
from ..answers.dialogue import Dialogue
from ..answers.turns import Turns
from ..news import EngineNews, Ready
from ..widgets.banner import Banner
from ..widgets.conversation_list import ConversationList
from ..widgets.message_view import MessageView
from ..widgets.page import CodeClicked, LinkClicked
from ..widgets.prompt import Prompt
from ..widgets.stats_panel import StatsPanel
from ..widgets.top_line import TopLine
from .chat_news import ChatNews
from .composing import Composing
from .conversation_screen import ConversationScreen
from .list_actions import ListActions
from .message_actions import MessageActions

HINTS = Content.assemble(
    ("edge_specquant\n", "bold $text-primary"),
    "a precise model answers, its small siblings draft\n\n",
    ("Enter   ", "$text-accent"), "send              \n",
    ("Ctrl+J  ", "$text-accent"), "new line          \n",
    ("Ctrl+L  ", "$text-accent"), "conversations     \n",
    ("Ctrl+P  ", "$text-accent"), "commands, themes  \n",
    ("F1      ", "$text-accent"), "all keys          ",
)  # fmt: skip


class ChatScreen(ConversationScreen):
    """The program's home."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop"),
        Binding("escape", "leave", "Back", show=False),
        Binding("f1", "app.keys", "Keys"),
        Binding("ctrl+l", "conversations", "Conversations", priority=True),
        Binding("ctrl+r", "regenerate", "Regenerate", priority=True),
        Binding("ctrl+g", "redo", "Redo precisely", priority=True),
        Binding("ctrl+o", "origins", "Colours", priority=True),
        Binding("ctrl+s", "stats", "Figures", priority=True),
        Binding("ctrl+n", "new", "New", priority=True, show=False),
        Binding("ctrl+t", "branches", "Branches", priority=True, show=False),
        Binding("ctrl+f", "attach", "Attach", priority=True, show=False),
        Binding("f2", "preset", "Preset", show=False),
        Binding("f3", "app.choose_family", "Model", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.news = ChatNews(self)
        self.list_actions = ListActions(self)
        self.composing = Composing(self)
        self.message_actions = MessageActions(self, self.composing, self.list_actions)

    def compose(self) -> ComposeResult:
        """Top line, three columns, footer."""
        yield TopLine()
        with Horizontal(id="columns"):
            yield ConversationList()
            with Vertical(id="middle"):
                with VerticalScroll(id="messages", can_focus=False):
                    yield Static("", id="earlier", markup=False)
                    yield Static(HINTS, id="empty")
                yield Banner()
                yield Static("", id="attached", markup=False)
                yield Prompt()
            yield StatsPanel()
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """The keyboard belongs to the prompt from the first moment."""
        self.query_one(Prompt).focus()
        self.query_one("#messages", VerticalScroll).anchor()
        self.set_interval(0.5, self.draw_figures)

    # What others give

    def begin(self, dialogue: Dialogue, turns: Turns) -> None:
        """The store is open: conversations can be listed and kept."""
        super().begin(dialogue, turns)
        if self.opening:
            self.composing.send_waiting()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc stops while an answer arrives; otherwise it leads back to the prompt."""
        del parameters
        return self.running if action == "stop" else True

    def action_stop(self) -> None:
        """Stops the answer."""
        if self.running:
            self.turns.stop()
            self.news.stopping()

    def action_leave(self) -> None:
        """Back to the prompt; an earlier message stays as it was."""
        self.composing.cancel_edit()
        self.query_one(Prompt).focus()

    async def action_new(self) -> None:
        """A new conversation."""
        if self.has_begun:
            self.turns.abandon()
            self.dialogue.start_new()
            await self.draw_conversation()
            self.query_one(Banner).clear()
            self.query_one(Prompt).focus()

    async def action_origins(self) -> None:
        """Markdown, or plain text in the colours of who wrote it."""
        self.origins = not self.origins
        self.query_one(StatsPanel).set_class(self.origins, "origins")
        for view in self.query(MessageView):
            await view.show_origins(self.coloured(view.message))

    def action_stats(self) -> None:
        """Shows or hides the figures."""
        panel = self.query_one(StatsPanel)
        self.set_class(panel.display, "no-stats")
        self.set_class(not panel.display, "want-stats")
        self.call_after_refresh(self.draw_figures)

    def action_branches(self) -> None:
        """The tree of the conversation."""
        self.message_actions.show_branches()

    def action_preset(self) -> None:
        """System prompt and presets."""
        self.composing.choose_preset()

    def action_attach(self) -> None:
        """A text file for the next message."""
        self.composing.ask_for_file()

    async def action_regenerate(self) -> None:
        """Another version of the last answer."""
        if self.has_begun:
            await self.message_actions.regenerate(None)

    async def action_go_on(self) -> None:
        """The last answer, continued where it was cut."""
        if self.has_begun:
            await self.message_actions.go_on(None)

    async def action_redo(self) -> None:
        """The last answer, verified and gone on with by the most precise sibling."""
        if self.has_begun:
            await self.message_actions.redo(None)

    @on(EngineNews)
    async def _hear(self, news: EngineNews) -> None:
        await self.news.hear(news)
        if isinstance(news, Ready):
            self.composing.send_waiting()

    @on(CodeClicked)
    def _code_clicked(self, clicked: CodeClicked) -> None:
        self.message_actions.copy(clicked.code, "code block")

    @on(Markdown.LinkClicked)
    @on(LinkClicked)
    def _link_clicked(self, clicked: Markdown.LinkClicked | LinkClicked) -> None:
        self.tell(f"this link leads to {clicked.href}")

    @on(MessageView.Wanted)
    async def _message_wanted(self, wanted: MessageView.Wanted) -> None:
        try:
            await self.message_actions.obey(wanted)
        except EdgeSpecQuantError as error:
            self.complain(str(error))

    @on(ConversationList.Wanted)
    def _list_wanted(self, wanted: ConversationList.Wanted) -> None:
        if not self.has_begun:
            return
        try:
            self.list_actions.obey(wanted)
        except EdgeSpecQuantError as error:
            self.complain(str(error))

    @on(Prompt.Sent)
    async def _sent(self, sent: Prompt.Sent) -> None:
        try:
            await self.composing.send(sent.text)
        except EdgeSpecQuantError as error:
            self.complain(str(error))

    @on(Prompt.PastedLong)
    def _pasted(self, pasted: Prompt.PastedLong) -> None:
        self.composing.attach_text("pasted text", pasted.text)
