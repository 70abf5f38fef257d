"""The conversation on the chat's screen: draws it, opens another, begins answers. Keys and news come from outside.

The half of the chat screen that its helpers (`chat_news`, `composing`, `list_actions`, `message_actions`) may use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from ...printable import shown
from ...store import Message
from .. import panel_figures
from ..answers.dialogue import Dialogue
from ..answers.redo import Redo, judge_for
from ..answers.reply import tokens_of
from ..answers.turns import Turns
from ..choosing import own_presets
from ..news import FamilyFacts
from ..widgets.banner import Banner
from ..widgets.conversation_list import ConversationList
from ..widgets.message_view import MessageView
from ..widgets.prompt import Prompt
from ..widgets.stats_panel import StatsPanel
from ..widgets.top_line import TopLine

if TYPE_CHECKING:
    from ...placement.power.vitals import Vitals

MAX_DRAWN = 60
NEAR = 4  # messages at the end that are drawn before somebody looks
NARROW_CELLS, WIDE_CELLS = 80, 110


class ConversationScreen(Screen[None]):
    """A screen that holds the chat's widgets and the conversation on show."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: FamilyFacts | None = None
        self.vitals: Vitals | None = None
        self.presets_path = own_presets.default_path()
        self.origins = False
        self.opening = True  # a family is on its way, so what is sent may wait for it
        self._dialogue: Dialogue | None = None
        self._turns: Turns | None = None

    def begin(self, dialogue: Dialogue, turns: Turns) -> None:
        """The store is open: conversations can be listed and kept."""
        self._dialogue, self._turns = dialogue, turns
        pane = self.query_one(ConversationList)
        pane.store = dialogue.store
        pane.refresh_entries()
        if dialogue.store.notice:
            self.complain(dialogue.store.notice, is_error=False)

    def show_state(self, text: str, *, busy: bool) -> None:
        """What the engine is doing, in the top line."""
        self.query_one(TopLine).show_state(text, busy=busy)

    @property
    def has_begun(self) -> bool:
        """Whether the store is open."""
        return self._turns is not None

    @property
    def dialogue(self) -> Dialogue:
        """The conversation on show."""
        assert self._dialogue is not None
        return self._dialogue

    @property
    def turns(self) -> Turns:
        """Answers under way."""
        assert self._turns is not None
        return self._turns

    @property
    def running(self) -> bool:
        """Whether an answer is arriving."""
        return self._turns is not None and self._turns.running

    def tell(self, text: str) -> None:
        """A passing remark."""
        self.notify(shown(text), markup=False, timeout=4)

    def complain(self, text: str, way_on: str = "", *, is_error: bool = True) -> None:
        """Something a person must see: it stays until the next message."""
        self.query_one(Banner).say(text, way_on, is_error=is_error)

    # Drawing

    async def draw_conversation(self, focus_message: int | None = None) -> None:
        """Draws the branch on show from the store."""
        messages = self.dialogue.messages()
        versions = self.dialogue.versions()
        pane = self.query_one("#messages", VerticalScroll)
        drawn = messages[-MAX_DRAWN:]
        views = [
            MessageView(
                message,
                versions.get(message.id),
                origins=self.coloured(message),
                is_near=place >= len(drawn) - NEAR or message.id == focus_message,
            )
            for place, message in enumerate(drawn)
        ]
        async with self.batch():
            await pane.query(MessageView).remove()
            n_earlier = len(messages) - len(drawn)
            earlier = self.query_one("#earlier", Static)
            earlier.display = n_earlier > 0
            earlier.update(f"{n_earlier} earlier messages: Ctrl+T shows them all")
            self.query_one("#empty").display = not messages
            await pane.mount_all(views)
        pane.anchor()
        self.remember_prompts(messages)
        self.draw_title()
        found = [view for view in views if view.message.id == focus_message]
        if found:
            found[0].focus()

    def remember_prompts(self, messages: Sequence[Message]) -> None:
        """What Up and Down go through."""
        self.query_one(Prompt).remember([message.text for message in messages if message.role == "user"])

    async def draw_message(self, message: Message) -> MessageView:
        """Adds one message at the end."""
        view = MessageView(message, self.dialogue.versions().get(message.id), origins=self.coloured(message))
        self.query_one("#empty").display = False
        pane = self.query_one("#messages", VerticalScroll)
        await pane.mount(view)
        pane.anchor()
        return view

    def view_of(self, message_id: int | None) -> MessageView | None:
        """The view of a message, if it is drawn."""
        return next((view for view in self.query(MessageView) if view.message.id == message_id), None)

    def draw_title(self) -> None:
        """The title and the preset in the top line."""
        if self._dialogue is None:
            return
        conversation = self._dialogue.conversation
        title = conversation.title if conversation else "new conversation"
        preset = self._dialogue.preset.name
        self.query_one(TopLine).show_title(title if preset == "default" else f"{title} [{preset}]")

    def draw_figures(self) -> None:
        """The side panel, if it is there to be seen."""
        panel = self.query_one(StatsPanel)
        if panel.display and self._turns is not None:
            turns = self._turns
            found = panel_figures.sections(self.facts, turns.reply, turns.last_end, self.vitals, turns.clock())
            panel.show(found, panel_figures.last_rounds(turns.reply))

    def coloured(self, message: Message) -> bool:
        """Whether an answer is drawn in the colours of who wrote it; a redo always is."""
        return self.origins or "redo" in message.record

    def action_conversations(self) -> None:
        """Shows or hides the pane of conversations."""
        pane = self.query_one(ConversationList)
        self.show_list(not pane.has_class("shown"))
        if pane.has_class("shown"):
            conversation = self._dialogue.conversation if self._dialogue else None
            pane.refresh_entries(conversation.id if conversation else None)
            pane.query_one("#entries").focus()
        else:
            self.query_one(Prompt).focus()

    def show_list(self, shown: bool) -> None:
        """The pane of conversations; on a narrow terminal it takes the place of the messages."""
        self.query_one(ConversationList).set_class(shown, "shown")
        self.set_class(shown, "listing")

    # Conversations

    def open_conversation(self, conversation_id: int, focus_message: int | None = None) -> None:
        """Puts a stored conversation on show."""
        self.turns.abandon()
        self.dialogue.open(conversation_id)
        if self.size.width < NARROW_CELLS:
            self.show_list(False)
        self.query_one(Prompt).focus()
        self.run_worker(self.draw_conversation(focus_message), exclusive=True, group="draw")

    def show_again(self, conversation_id: int) -> None:
        """Draws the conversation if it is the one on show."""
        conversation = self.dialogue.conversation
        if conversation is None or conversation.id == conversation_id:
            self.dialogue.open(conversation_id)
            self.run_worker(self.draw_conversation(), exclusive=True, group="draw")

    def title_changed(self, conversation_id: int) -> None:
        """The title in the top line, if it is that conversation's."""
        conversation = self.dialogue.conversation
        if conversation is not None and conversation.id == conversation_id:
            self.dialogue.open(conversation_id)
            self.draw_title()

    def before_delete(self, conversation_id: int) -> None:
        """Leaves a conversation that is about to be deleted."""
        conversation = self.dialogue.conversation
        if conversation is not None and conversation.id == conversation_id:
            self.turns.abandon()
            self.dialogue.start_new()
            self.run_worker(self.draw_conversation(), exclusive=True, group="draw")

    # Messages

    async def answer(
        self, beside: int | None = None, redo: Redo | None = None, continued: Message | None = None
    ) -> None:
        """Draws the place of an answer, then asks for it. While the model loads, it waits in the engine's line."""
        self.query_one(Banner).clear()
        message_id = self.turns.begin(beside, redo, continued)
        self.refresh_bindings()
        if beside is None:
            await self.draw_message(self.dialogue.store.message(message_id))
        else:
            await self.draw_conversation()
        if self.facts is not None:
            self.show_state("reading", busy=True)
        self.turns.start()

    def redo_of(self, message: Message) -> Redo | str:
        """How to redo an answer, or why it cannot be."""
        if self.facts is None:
            return "the model is still loading"
        tokens = tokens_of(message.record)
        if not tokens:
            return "this answer's tokens were not kept"
        names = [name for name, _ in self.facts.siblings]
        judge = judge_for(str(message.record.get("target") or ""), names)
        if judge is None:
            return f"it is from the most precise sibling already ({', '.join(names)} are there)"
        return Redo(judge, tokens)
