"""A conversation in memory: messages with the token ids replies were generated with. Knows no engine and no file.

Edit and regenerate shorten it; `branch` copies it, so that nothing said is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """role is "user" or "assistant". finish_reason says how a reply ended (None: a user's message). thought is what the
    model thought before the text; token_ids are the text's.
    """

    role: str
    text: str
    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    thought: str = ""


@dataclass(slots=True)
class Conversation:
    """What was said so far, oldest first, and the system prompt."""

    system: str | None = None
    messages: list[ChatMessage] = field(default_factory=list)

    @classmethod
    def from_messages(cls, messages: Iterable[Mapping[str, Any]]) -> Conversation:
        """From role/content mappings, as servers and stores keep them; a first system message becomes `system`."""
        made = cls()
        for message in messages:
            role, text = str(message["role"]), str(message["content"])
            if role == "system" and not made.messages and made.system is None:
                made.system = text
            else:
                ids, thought = tuple(message.get("token_ids", ())), str(message.get("reasoning_content") or "")
                made.messages.append(ChatMessage(role, text, ids, thought=thought))
        return made

    def say(self, text: str) -> None:
        """Adds what the user says."""
        self.messages.append(ChatMessage("user", text))

    def drop_reply(self) -> None:
        """Takes the last reply away, so that it can be written again."""
        if self.messages and self.messages[-1].role == "assistant":
            self.messages.pop()

    def edit(self, index: int, text: str) -> None:
        """Puts other words into a message and drops what followed it. Raises UsageError for a message there is not."""
        if not -len(self.messages) <= index < len(self.messages):
            raise UsageError(f"there is no message {index}; the conversation has {len(self.messages)}")
        at = index % len(self.messages)
        self.messages[at:] = [replace(self.messages[at], text=text, token_ids=())]

    def branch(self, n_messages: int | None = None) -> Conversation:
        """A copy of the first n messages (all by default) that goes its own way."""
        return Conversation(self.system, self.messages[:n_messages])

    def as_messages(self) -> list[dict[str, Any]]:
        """Role, content and token ids for a request. Two messages in a row of one role become one, since many
        templates refuse them: that happens after a reply that was stopped before its first word.
        """
        merged: list[dict[str, Any]] = []
        for message in self.messages:
            if merged and merged[-1]["role"] == message.role:
                merged[-1] = {"role": message.role, "content": f"{merged[-1]['content']}\n\n{message.text}"}
                continue
            merged.append({"role": message.role, "content": message.text})
            if message.thought:
                merged[-1]["reasoning_content"] = message.thought
            if message.token_ids:
                merged[-1]["token_ids"] = message.token_ids
        return merged
