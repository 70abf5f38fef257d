"""Conversations kept on disk: a tree of messages each, searchable, exportable, safe from crashes.

From the ground up: records, process_mark, schema, files; tree, conversations, answers, search, copies (SQL on an open
connection); backups, opening, homecoming, database, streaming; store (the one object); portable, markdown (copies as
JSON and Markdown).
"""

from .records import Conversation, Deletion, Hit, Message
from .rows.copies import ConversationCopy, MessageCopy
from .store import Store, open_store
from .streaming import MessageWriter

__all__ = [
    "Conversation",
    "ConversationCopy",
    "Deletion",
    "Hit",
    "Message",
    "MessageCopy",
    "MessageWriter",
    "Store",
    "open_store",
]
