"""A conversation's branch on show as Markdown, to read and to edit, and back.

Comments that a renderer does not show carry what Markdown cannot: `<!-- conversation {...} -->` at the start and
`<!-- message {...} -->` before each message. A line of a message that looks like such a comment gets a backslash in
front, so texts come back exactly. Statistics, presets and other branches are left out: JSON keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ...errors import StoreError
from ..records import ROLES, STATUSES, clean_text
from ..rows.copies import ConversationCopy, MessageCopy
from .portable import Fields

_COMMENT = re.compile(r"<!-- (conversation|message) (\{.*\}) -->")
_LOOKS_LIKE_ONE = re.compile(r"\\*<!-- (?:conversation|message) ")


def branch_on_show(value: ConversationCopy) -> tuple[MessageCopy, ...]:
    """The messages from the first to the leaf on show."""
    found: list[MessageCopy] = []
    place = value.leaf
    while place is not None:
        found.append(value.messages[place])
        place = value.messages[place].parent
    return tuple(reversed(found))


def to_markdown(value: ConversationCopy) -> str:
    """Markdown text of the branch on show; ends with a newline."""
    head = {"title": value.title, "system": value.system, "created_at": value.created_at}
    parts = [_comment("conversation", head), f"# {_one_line(value.title) or 'Conversation'}\n"]
    if value.system:
        parts.append("".join(f"> {line}\n" for line in value.system.splitlines()))
    for message in branch_on_show(value):
        about: dict[str, object] = {"role": message.role, "status": message.status, "created_at": message.created_at}
        about |= {"thought": message.thought} if message.thought else {}
        parts += [f"## {message.role.capitalize()}\n", _comment("message", about) + _guarded(message.text) + "\n"]
    return "\n".join(parts)


def from_markdown(text: str) -> ConversationCopy:
    """The conversation of a Markdown text that `to_markdown` made and a person may have edited; or StoreError."""
    blocks = _blocks(text)
    if not blocks or blocks[0][0] != "conversation":
        raise StoreError("the Markdown has no '<!-- conversation' comment; export one to see the form")
    head = blocks[0][1]
    messages = [_message(fields, lines, place) for place, (_, fields, lines) in enumerate(blocks[1:])]
    return ConversationCopy(
        head.text("title"),
        head.text("system"),
        {},
        False,
        head.seconds("created_at"),
        max([head.seconds("created_at"), *(message.created_at for message in messages)]),
        len(messages) - 1 if messages else None,
        tuple(messages),
    )


def _message(fields: Fields, lines: Sequence[str], place: int) -> MessageCopy:
    return MessageCopy(
        place - 1 if place else None,
        fields.one_of("role", ROLES),
        _unguarded(lines),
        fields.one_of("status", [status for status in STATUSES if status != "streaming"]),
        {},
        fields.seconds("created_at"),
        place,
        fields.text("thought") if fields.has("thought") else "",
    )


def _blocks(text: str) -> list[tuple[str, Fields, list[str]]]:
    """The comments in order, each with the lines of its text."""
    blocks: list[tuple[str, Fields, list[str]]] = []
    text = text.removeprefix("\ufeff")
    if text.partition("\n")[0].endswith("\r"):  # an editor gave the whole file CR LF
        text = text.replace("\r\n", "\n")
    for number, line in enumerate(text.split("\n"), 1):
        match = _COMMENT.fullmatch(line)
        if match:
            blocks.append((match[1], Fields(_values(match[2], number), f"line {number}"), []))
            if match[1] == "conversation" and len(blocks) > 1:
                raise StoreError(f"line {number} begins a second conversation; put each in a file of its own")
        elif blocks:
            blocks[-1][2].append(line)
    last = len(blocks) - 1
    return [(kind, fields, _text_lines(lines, is_last=n == last)) for n, (kind, fields, lines) in enumerate(blocks)]


def _text_lines(lines: list[str], *, is_last: bool) -> list[str]:
    """Drops what `to_markdown` puts behind a text: its last newline, and the heading of the next message."""
    kept = list(lines)
    endings = ("",) if is_last else ("", "## ", "")
    for ending in endings:
        if kept and (kept[-1].startswith(ending) if ending else not kept[-1]):
            kept.pop()
    return kept


def _unguarded(lines: Sequence[str]) -> str:
    shown = [line[1:] if line.startswith("\\") and _LOOKS_LIKE_ONE.match(line) else line for line in lines]
    return "\n".join(shown)


def _guarded(text: str) -> str:
    return "\n".join("\\" + line if _LOOKS_LIKE_ONE.match(line) else line for line in text.split("\n"))


def _comment(kind: str, values: dict[str, object]) -> str:
    # '>' is escaped so that no value can close the comment.
    body = json.dumps(values, ensure_ascii=False, allow_nan=False).replace(">", "\\u003e")
    return f"<!-- {kind} {body} -->\n"


def _values(text: str, number: int) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"line {number}: the comment holds no JSON: {error}") from error


def _one_line(text: str) -> str:
    return " ".join(clean_text(text).split())
