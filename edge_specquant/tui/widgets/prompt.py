"""Where a person types: Enter sends, Ctrl+J makes a new line, Up and Down at the edges go through earlier messages.

A paste arrives whole and never sends itself; a very long one becomes an attachment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from ...printable import shown

LONG_PASTE_CHARS = 20_000
NEW_LINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")


class Prompt(TextArea):
    """A text area that grows to eight lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send"),
        Binding(",".join(NEW_LINE_KEYS), "new_line", "New line", key_display="^J"),
        Binding("shift+tab", "app.focus_messages", "Messages", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    Prompt { height: auto; min-width: 12; min-height: 3; max-height: 10; border: round $border-blurred; padding: 0 1;
             background: $background; scrollbar-size-vertical: 1; }
    Prompt:focus { border: round $border; }
    """

    class Sent(Message):
        """A message to send."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class PastedLong(Message):
        """A paste too long for a prompt."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(
            soft_wrap=True, show_line_numbers=False, tab_behavior="focus", highlight_cursor_line=False, id="prompt"
        )
        self.placeholder = "Ask anything"
        self._history: list[str] = []
        self._place = 0
        self._draft = ""

    def remember(self, texts: Sequence[str]) -> None:
        """Earlier messages, oldest first, for Up and Down."""
        self._history = [text for i, text in enumerate(texts) if i == 0 or text != texts[i - 1]]
        self._place = len(self._history)

    def put(self, text: str) -> None:
        """Replaces what is typed; the cursor goes to its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def action_send(self) -> None:
        """Sends what is typed, if anything."""
        text = self.text.strip("\n")
        self.post_message(self.Sent(text))

    def action_new_line(self) -> None:
        """A line break at the cursor."""
        self.insert("\n")

    def action_cursor_up(self, select: bool = False) -> None:
        """Up; from the first line, the message before."""
        if select or not self.cursor_at_first_line or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Down; from the last line, the message after."""
        if select or not self.cursor_at_last_line or not self._recall(1):
            super().action_cursor_down(select)

    async def _on_key(self, event: events.Key) -> None:
        """Enter and its kin take their place among the letters: as bindings they would overtake fast typing."""
        if event.key == "enter":
            self.action_send()
        elif event.key in NEW_LINE_KEYS:
            self.action_new_line()
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        text = shown(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        event.stop()
        event.prevent_default()
        if len(text) > LONG_PASTE_CHARS:
            self.post_message(self.PastedLong(text))
            return
        result = self._replace_via_keyboard(text, *self.selection)
        if result:
            self.move_cursor(result.end_location)

    def _recall(self, step: int) -> bool:
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return False
        if self._place == len(self._history):
            self._draft = self.text
        self._place = place
        self.put(self._draft if place == len(self._history) else self._history[place])
        return True
