"""The one knot: a family and options to replies. Front ends and other people's Python use only what is named here.

with Runtime.process("demo") as runtime:
    for event in runtime.generate("Why is the sky blue?"):
        print(event.text, end="", flush=True)
"""

from ..engine.events import TokenEvent
from .conversation import ChatMessage, Conversation
from .facade import Runtime
from .options import EngineOptions, OnPrefill
from .reply import Reply
from .status import ResidentStatus, Status

__all__ = [
    "ChatMessage",
    "Conversation",
    "EngineOptions",
    "OnPrefill",
    "Reply",
    "ResidentStatus",
    "Runtime",
    "Status",
    "TokenEvent",
]
