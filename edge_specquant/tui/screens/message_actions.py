"""What a key on a message asks for, done: copy, edit, regenerate, go on, redo, switch, delete. The chat screen's."""

from __future__ import annotations

from itertools import pairwise

from ...store import Message
from ..clipboard import copy_to_system
from ..widgets.message_view import MessageView
from ..widgets.prompt import Prompt
from .branches import Branches
from .composing import Composing
from .conversation_screen import ConversationScreen
from .list_actions import ListActions


class MessageActions:
    """Acts on the message whose view was focused, or on the last answer."""

    def __init__(self, screen: ConversationScreen, composing: Composing, list_actions: ListActions) -> None:
        self._screen, self._composing, self._list_actions = screen, composing, list_actions

    async def obey(self, wanted: MessageView.Wanted) -> None:
        """Does what a key on a message asked for."""
        screen, view, message = self._screen, wanted.view, wanted.view.message
        if wanted.what == "copy":
            self.copy(message.text, "message")
        elif wanted.what == "copy_code":
            self._copy_next_block(view)
        elif wanted.what == "leave":
            screen.query_one(Prompt).focus()
        elif screen.running:
            screen.tell("an answer is arriving; Esc stops it")
        elif wanted.what == "edit":
            self._edit(message)
        elif wanted.what == "regenerate":
            await self.regenerate(message)
        elif wanted.what == "redo":
            await self.redo(message)
        elif wanted.what == "go_on":
            await self.go_on(message)
        elif wanted.what in ("previous", "next"):
            await self._switch(message, -1 if wanted.what == "previous" else 1)
        elif wanted.what == "delete":
            await self._delete(message)
        elif wanted.what == "undo":
            self._list_actions.undo()

    def copy(self, text: str, what: str) -> None:
        """To the terminal's clipboard (OSC 52) and the system's."""
        self._screen.app.copy_to_clipboard(text)
        self._screen.run_worker(lambda: copy_to_system(text), thread=True, group="clipboard")
        self._screen.tell(f"copied the {what}")

    async def regenerate(self, message: Message | None) -> None:
        """Another version of an answer; for a message of the user, an answer below it."""
        screen = self._screen
        message = message or self._last()
        if message is None or screen.running:
            screen.tell("an answer is arriving; Esc stops it" if screen.running else "nothing to answer yet")
        elif message.role == "assistant":
            await screen.answer(beside=message.id)
        else:
            await self._answer_below(message)

    async def redo(self, message: Message | None) -> None:
        """The answer, verified by the most precise sibling as if it were one long draft."""
        screen = self._screen
        message = message or self._last()
        if message is None or message.role != "assistant" or screen.running:
            screen.tell("an answer is arriving; Esc stops it" if screen.running else "there is no answer to redo")
            return
        redo = screen.redo_of(message)
        if isinstance(redo, str):
            screen.tell(f"no redo: {redo}")
        else:
            await screen.answer(beside=message.id, redo=redo)

    async def go_on(self, message: Message | None) -> None:
        """An answer that was cut, continued in another version of it."""
        screen = self._screen
        message = message or self._last()
        if message is None or message.role != "assistant" or not message.text or screen.running:
            screen.tell("an answer is arriving; Esc stops it" if screen.running else "there is no answer to go on with")
        elif message.record.get("finish_reason") == "stop":
            screen.tell("this answer is whole; r answers again")
        else:
            await screen.answer(beside=message.id, continued=message)

    def show_branches(self) -> None:
        """The tree of all versions."""
        screen = self._screen
        if not screen.has_begun or screen.dialogue.conversation is None:
            screen.tell("nothing has branched yet")
            return
        messages = screen.dialogue.store.all_messages(screen.dialogue.conversation.id)
        on_show = [message.id for message in screen.dialogue.messages()]
        screen.app.push_screen(Branches(messages, on_show), self._branch_chosen)

    def _branch_chosen(self, message_id: int | None) -> None:
        screen = self._screen
        if message_id is None or screen.running:
            return
        screen.dialogue.store.show(message_id)
        screen.run_worker(screen.draw_conversation(message_id), exclusive=True, group="draw")

    def _last(self) -> Message | None:
        messages = self._screen.dialogue.messages()
        return messages[-1] if messages else None

    async def _answer_below(self, message: Message) -> None:
        """Below the message on show; if it has answers already, beside the one on show."""
        messages = self._screen.dialogue.messages()
        below = next((after for before, after in pairwise(messages) if before == message), None)
        await self._screen.answer(beside=below.id if below else None)

    def _edit(self, message: Message) -> None:
        if message.role == "user":
            self._composing.edit(message)
        else:
            self._screen.tell("only your own messages can be edited; r answers again")

    async def _switch(self, message: Message, step: int) -> None:
        if not self._screen.dialogue.switch(message.id, step):
            return
        shown_now = [one for one in self._screen.dialogue.messages() if one.parent_id == message.parent_id]
        await self._screen.draw_conversation(shown_now[0].id if shown_now else None)

    async def _delete(self, message: Message) -> None:
        deletion = self._screen.dialogue.store.delete_message(message.id)
        self._list_actions.deletions.append(deletion)
        await self._screen.draw_conversation()
        self._screen.query_one(Prompt).focus()
        self._screen.tell("deleted the message and all below it; u on a message brings them back")

    def _copy_next_block(self, view: MessageView) -> None:
        blocks = view.code_blocks
        if not blocks:
            self._screen.tell("there is no code block in this message")
            return
        view.copied_block = (view.copied_block + 1) % len(blocks)
        which = f"code block {view.copied_block + 1} of {len(blocks)}" if len(blocks) > 1 else "code block"
        self.copy(blocks[view.copied_block], which)
