"""From the prompt to a sent message: attachments, editing an earlier message, presets. Belongs to the chat screen."""

from __future__ import annotations

from textual.widgets import Static

from ...errors import EdgeSpecQuantError
from ...printable import shown
from ...store import Message
from ..answers.attachments import Attachment, read_attachment, with_attachments
from ..choosing import own_presets
from ..choosing.presets import Preset
from ..widgets.banner import CHOOSE
from ..widgets.prompt import Prompt
from .ask_line import AskLine
from .conversation_screen import ConversationScreen
from .preset_window import PresetWindow


class Composing:
    """What will go out with the next Enter."""

    def __init__(self, screen: ConversationScreen) -> None:
        self._screen = screen
        self.attachments: tuple[Attachment, ...] = ()
        self.editing: Message | None = None
        self._waiting: str | None = None

    async def send(self, text: str) -> None:
        """Sends what was typed, with what is attached. Before the store is open, it waits; nothing is lost."""
        screen = self._screen
        if not text.strip() and not self.attachments:
            return
        if not screen.has_begun:
            self._waiting = text
            return
        if screen.facts is None and not screen.opening:
            screen.complain("there is no model yet; what you wrote stays here", CHOOSE)
            return
        if screen.running:
            screen.tell("an answer is arriving; Esc stops it")
            return
        n_ctx = screen.facts.n_ctx if screen.facts else None
        problem = next((found for item in self.attachments if (found := item.problem(n_ctx))), None)
        if problem:
            screen.complain(problem, "Ctrl+F, empty line: attach nothing")
            return
        whole = with_attachments(text, self.attachments)
        if self.editing is not None:
            screen.dialogue.edit(self.editing.id, whole)
            self._clear()
            await screen.draw_conversation()
        else:
            message = screen.dialogue.ask(whole)
            self._clear()
            await screen.draw_message(message)
            screen.remember_prompts(screen.dialogue.messages())
            screen.draw_title()
        await screen.answer()

    def send_waiting(self) -> None:
        """The store is open: sends what was typed before."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._screen.query_one(Prompt).post_message(Prompt.Sent(waiting))

    def edit(self, message: Message) -> None:
        """Puts an earlier message into the prompt; sending makes another version of it."""
        self.editing = message
        prompt = self._screen.query_one(Prompt)
        prompt.put(shown(message.text))
        prompt.focus()
        self._draw()

    def cancel_edit(self) -> None:
        """Leaves the earlier message as it is."""
        if self.editing is not None:
            self.editing = None
            self._screen.query_one(Prompt).put("")
            self._draw()

    def attach_text(self, name: str, text: str) -> None:
        """Attaches a text, and asks the engine for its length in tokens."""
        self._attach(Attachment(name, text))

    def ask_for_file(self) -> None:
        """Asks for a path; an empty answer takes all attachments away."""
        hint = "a path to a text file; an empty line takes attachments away"
        self._screen.app.push_screen(AskLine("Attach a text file", "", hint), self._file_named)

    def counted(self, key: str, n_tokens: int) -> None:
        """The engine counted an attachment."""
        self.attachments = tuple(item.counted(n_tokens) if item.name == key else item for item in self.attachments)
        self._draw()

    def choose_preset(self) -> None:
        """Asks for a preset and a system prompt."""
        if self._screen.has_begun:
            dialogue = self._screen.dialogue
            window = PresetWindow(dialogue.presets, dialogue.preset, dialogue.system, self._keep_preset)
            self._screen.app.push_screen(window, self._preset_chosen)

    def _keep_preset(self, name: str, system: str) -> Preset:
        preset = own_presets.add(self._screen.presets_path, name, system)
        self._screen.dialogue.presets += (preset,)
        return preset

    def _preset_chosen(self, chosen: tuple[Preset, str] | None) -> None:
        if chosen is not None:
            self._screen.dialogue.set_preset(*chosen)
            self._screen.draw_title()

    def _file_named(self, path_text: str | None) -> None:
        if path_text is None:
            return
        if not path_text.strip():
            self.attachments = ()
            self._draw()
            return
        try:
            self._attach(read_attachment(path_text))
        except EdgeSpecQuantError as error:
            self._screen.complain(str(error))

    def _attach(self, attachment: Attachment) -> None:
        problem = attachment.problem(self._screen.facts.n_ctx if self._screen.facts else None)
        if problem and attachment.likely_tokens > 4 * (self._screen.facts.n_ctx or 0 if self._screen.facts else 0):
            self._screen.complain(problem)
            return
        self.attachments = (*(item for item in self.attachments if item.name != attachment.name), attachment)
        if self._screen.has_begun:
            self._screen.turns.engine.count(attachment.name, attachment.text)
        self._draw()

    def _clear(self) -> None:
        self.attachments, self.editing = (), None
        self._screen.query_one(Prompt).put("")
        self._draw()

    def _draw(self) -> None:
        parts = [f"+ {shown(item.describe())}" for item in self.attachments]
        if self.editing is not None:
            parts.insert(0, "editing an earlier message: Enter sends it as another version, Esc leaves it")
        line = self._screen.query_one("#attached", Static)
        line.update("\n".join(parts))
        line.display = bool(parts)
