"""edge_specquant: one checkpoint in, a family of GGUF siblings out, and the fastest honest way to chat with them.

import edge_specquant

with edge_specquant.Runtime.process("demo") as runtime:
    for event in runtime.generate("Why is the sky blue?"):
        print(event.text, end="", flush=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .request import Request
    from .runtime import Conversation, EngineOptions, Runtime, TokenEvent

__version__ = "0.1.0"
__all__ = ["Conversation", "EngineOptions", "Request", "Runtime", "TokenEvent"]


def __getattr__(name: str) -> object:
    """The names above, imported when first asked for: setup imports this package before its dependencies are there."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from . import request, runtime

    return request.Request if name == "Request" else getattr(runtime, name)
