"""Conversations as JSON text and back: every branch, record and setting; nothing is lost.

Deleted branches are not part of a copy. Reading is strict: a file that does not hold what it should is refused with the
place and the reason, and nothing of it is taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...errors import StoreError
from ..records import ROLES, STATUSES
from ..rows.copies import ConversationCopy, MessageCopy

FORMAT = "edge-specquant conversations"
VERSION = 1


def to_json_text(values: Sequence[ConversationCopy]) -> str:
    """JSON text of one or more conversations, UTF-8 when encoded, keys in a fixed order."""
    document = {"format": FORMAT, "version": VERSION, "conversations": [_plain(value) for value in values]}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_json_text(text: str) -> list[ConversationCopy]:
    """The conversations of a JSON text, or StoreError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON: {error}") from error
    head = Fields(document, "the file")
    if head.text("format") != FORMAT:
        raise StoreError(f"the file says it holds '{head.text('format')}'; it must be '{FORMAT}'")
    if head.integer("version") > VERSION:
        raise StoreError(f"the file has version {head.integer('version')} and this release knows {VERSION}; upgrade")
    return [_conversation(Fields(item, f"conversation {n}")) for n, item in enumerate(head.items("conversations"))]


class Fields:
    """An object read from JSON, asked for its fields by type. StoreError names the place and the field."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise StoreError(f"{place} is {type(value).__name__}; it must be an object")
        self.place, self._values = place, value

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        value = self._get(name)
        if isinstance(value, str):
            return value
        raise self._wrong(name, value, "text")

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        value = self._get(name)
        if isinstance(value, str) and value in allowed:
            return value
        raise self._wrong(name, value, "one of " + ", ".join(allowed))

    def flag(self, name: str) -> bool:
        value = self._get(name)
        if isinstance(value, bool):
            return value
        raise self._wrong(name, value, "true or false")

    def integer(self, name: str) -> int:
        value = self._get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
            return value
        raise self._wrong(name, value, "a whole number")

    def integer_or_none(self, name: str) -> int | None:
        return None if self._get(name) is None else self.integer(name)

    def seconds(self, name: str) -> float:
        value = self._get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12:
            return float(value)
        raise self._wrong(name, value, "seconds since 1970")

    def mapping(self, name: str) -> Mapping[str, object]:
        value = self._get(name)
        if isinstance(value, dict):
            return value
        raise self._wrong(name, value, "an object")

    def items(self, name: str) -> list[object]:
        value = self._get(name)
        if isinstance(value, list):
            return value
        raise self._wrong(name, value, "a list")

    def _get(self, name: str) -> object:
        if name not in self._values:
            raise StoreError(f"{self.place} has no '{name}'")
        return self._values[name]

    def _wrong(self, name: str, value: object, wanted: str) -> StoreError:
        return StoreError(f"{self.place}: '{name}' is {str(value)[:40]!r}; it must be {wanted}")


def _plain(value: ConversationCopy) -> dict[str, object]:
    return {
        "title": value.title,
        "system": value.system,
        "preset": value.preset,
        "pinned": value.pinned,
        "created_at": value.created_at,
        "updated_at": value.updated_at,
        "leaf": value.leaf,
        "messages": [
            {
                "parent": message.parent,
                "role": message.role,
                "text": message.text,
                "status": message.status,
                "record": message.record,
                "created_at": message.created_at,
                "seen": message.seen,
                **({"thought": message.thought} if message.thought else {}),
            }
            for message in value.messages
        ],
    }


def _conversation(fields: Fields) -> ConversationCopy:
    messages = fields.items("messages")
    return ConversationCopy(
        fields.text("title"),
        fields.text("system"),
        fields.mapping("preset"),
        fields.flag("pinned"),
        fields.seconds("created_at"),
        fields.seconds("updated_at"),
        fields.integer_or_none("leaf"),
        tuple(_message(Fields(item, f"{fields.place}, message {n}")) for n, item in enumerate(messages)),
    )


def _message(fields: Fields) -> MessageCopy:
    return MessageCopy(
        fields.integer_or_none("parent"),
        fields.one_of("role", ROLES),
        fields.text("text"),
        fields.one_of("status", [status for status in STATUSES if status != "streaming"]),
        fields.mapping("record"),
        fields.seconds("created_at"),
        fields.integer("seen"),
        fields.text("thought") if fields.has("thought") else "",
    )
