"""One conversation at a time, over the store: what is on show, what the model is asked, what is kept of its answer.

Takes a Store and gives messages and Requests. Knows nothing of widgets, threads or engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...store import Conversation, Message, MessageWriter, Store
from ..choosing.presets import PRESETS, Preset, preset_named
from .reply import answer_tokens_of

if TYPE_CHECKING:
    from ...request import Request

TITLE_CHARS = 48

RequestFields = Callable[[], "dict[str, Any]"]
"""Gives the fields every request starts from (sampling, speculation, max_tokens ...); called when one is needed."""


@dataclass(frozen=True, slots=True)
class Version:
    """Which of its parent's children a message is: position from 1, and how many there are."""

    position: int
    count: int


class Dialogue:
    """The conversation on show. `conversation` is None until the first message is sent."""

    def __init__(
        self,
        store: Store,
        request_fields: RequestFields,
        system: str | None = None,
        presets: Sequence[Preset] = PRESETS,
    ) -> None:
        self.store = store
        self.presets = tuple(presets)
        self.conversation: Conversation | None = None
        self.preset: Preset = PRESETS[0]
        self._fields = request_fields
        self._first_system = system
        self.system = system or ""

    # What is on show

    def messages(self) -> list[Message]:
        """The branch on show, first message first."""
        return self.store.messages(self.conversation.id) if self.conversation else []

    def versions(self) -> dict[int, Version]:
        """Versions of the messages of the branch on show that have more than one."""
        if self.conversation is None:
            return {}
        children: dict[int | None, list[int]] = {}
        for message in self.store.all_messages(self.conversation.id):
            children.setdefault(message.parent_id, []).append(message.id)
        return {
            number: Version(place, len(numbers))
            for numbers in children.values()
            if len(numbers) > 1
            for place, number in enumerate(numbers, 1)
        }

    def start_new(self) -> None:
        """A new conversation; it enters the store with its first message."""
        self.conversation, self.preset, self.system = None, PRESETS[0], self._first_system or ""

    def open(self, conversation_id: int) -> None:
        """Puts a stored conversation on show. Raises StoreError."""
        self.conversation = self.store.conversation(conversation_id)
        self.preset = preset_named(str(self.conversation.preset.get("name", "")), self.presets)
        self.system = self.conversation.system

    def set_preset(self, preset: Preset, system: str) -> None:
        """Another preset and system prompt for this conversation."""
        self.preset, self.system = preset, system
        if self.conversation is not None:
            self.store.set_system(self.conversation.id, system)
            self.conversation = self.store.set_preset(self.conversation.id, {"name": preset.name})

    # Asking

    def ask(self, text: str) -> Message:
        """Adds a user message below what is on show; makes the conversation if there is none."""
        if self.conversation is None:
            self.conversation = self.store.create(title_of(text), system=self.system, preset={"name": self.preset.name})
        return self.store.add(self.conversation.id, "user", text)

    def edit(self, message_id: int, text: str) -> Message:
        """Adds another version of a user message; the older one stays as a branch."""
        return self.store.add_beside(message_id, text)

    def begin_answer(self, beside: int | None = None) -> MessageWriter:
        """Begins an answer to the last message on show, or another version of an answer."""
        assert self.conversation is not None
        return self.store.begin_beside(beside) if beside is not None else self.store.begin(self.conversation.id)

    def request(self, upto: int, continued: Message | None = None) -> Request:
        """What the model is asked so that it writes message `upto`: everything above it on the branch on show.

        continued: the answer that it begins with and goes on with.
        """
        from ...request import Request

        above: list[dict[str, Any]] = []
        for message in self.messages():
            if message.id == upto:
                break
            if message.text or message.role == "user":
                above.append(_as_asked(message))
        fields = self.preset.applied_to(self._fields())
        begun = [_as_asked(continued)] if continued is not None else []
        return Request(messages=(*_alternating(above), *begun), system=self.system or None, **fields)

    def switch(self, message_id: int, step: int) -> bool:
        """Shows the version before or after this one; False when there is none."""
        numbers = [message.id for message in self.store.siblings(message_id)]
        place = numbers.index(message_id) + step
        if not 0 <= place < len(numbers):
            return False
        self.store.show(numbers[place])
        return True


def title_of(text: str) -> str:
    """A conversation's first title: the beginning of its first message, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def _as_asked(message: Message) -> dict[str, Any]:
    """A message for a request; an answer carries the ids it was generated with, so that its cells can be reused."""
    asked: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.thought:
        asked["reasoning_content"] = message.thought  # the template decides what of it stays
    tokens = answer_tokens_of(message.record)
    return asked | {"token_ids": tokens} if tokens else asked


def _alternating(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one role joined: a cancelled turn without an answer must not upset a strict chat template."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            text = joined[-1]["content"] + "\n\n" + message["content"]
            joined[-1] = {"role": message["role"], "content": text}
        else:
            joined.append(message)
    return joined
