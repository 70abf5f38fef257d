"""What the store gives and takes: conversations, messages, hits, deletions; and the text and JSON they may hold.

Frozen values copied out of the database. They know nothing of SQL, files or engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import UsageError

Role = Literal["system", "user", "assistant", "tool"]
Status = Literal["complete", "streaming", "interrupted", "error"]
ROLES: tuple[str, ...] = get_args(Role)
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation. `leaf_id` is the last message of the branch on show, None while there is none."""

    id: int
    title: str
    system: str
    preset: Mapping[str, object]
    pinned: bool
    leaf_id: int | None
    created_at: float
    """Seconds since 1970 by the clock of the day: for display only; order never depends on it."""
    updated_at: float
    deleted: bool
    n_messages: int
    """Messages of all branches."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the tree. `record` holds how it was made: siblings, route, statistics. `thought` is what the model
    thought before it wrote the text.
    """

    id: int
    conversation_id: int
    parent_id: int | None
    role: str
    text: str
    status: str
    record: Mapping[str, object]
    created_at: float
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where every word of a query occurs: in a message, or in a title when `message` is None."""

    conversation: Conversation
    message: Message | None
    excerpt: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """A receipt to undo a deletion. `message_id` is None when the whole conversation was deleted."""

    conversation_id: int
    message_id: int | None
    leaf_before: int | None


def clean_text(text: str) -> str:
    """The text as stored: itself, but lone surrogates become U+FFFD (they have no UTF-8 form).

    NUL, escape sequences, CR and everything else are kept. A surrogate pair in two halves becomes its character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_role(role: str) -> str:
    """The role itself, or UsageError."""
    if role not in ROLES:
        raise UsageError(f"'{role}' is not a role; a message is of {', '.join(ROLES)}")
    return role


def clean_status(status: str) -> str:
    """The status itself, or UsageError."""
    if status not in STATUSES:
        raise UsageError(f"'{status}' is not a status; a message is {', '.join(STATUSES)}")
    return status


def to_json(record: Mapping[str, object]) -> str:
    """A record as JSON text; NaN and infinities, which JSON lacks, become null (unknown)."""
    try:
        return json.dumps(_finite(record), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a record must be plain JSON values: {error}") from error


def from_json(text: str) -> dict[str, object]:
    """A record read back; anything but a JSON object reads as an empty record."""
    value = json.loads(text)
    return value if isinstance(value, dict) else {}


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return clean_text(value) if isinstance(value, str) else value
