"""The engine's log-probabilities in OpenAI's two shapes. A token that is no whole character is shown by its bytes."""

from __future__ import annotations

from typing import Any

from ..engine.events import TokenEvent


class ChatLogprobs:
    """Entries of a chat, held back while their text is."""

    def __init__(self, n_top: int) -> None:
        self._n_top = n_top

    def feed(self, event: TokenEvent) -> list[dict[str, Any]]:
        """placeholder"""
        raise NotImplementedError(event)


class CompletionLogprobs:
    """placeholder"""

    def __init__(self, n_top: int) -> None:
        self._n_top = n_top

    def feed(self, event: TokenEvent) -> None:
        raise NotImplementedError(event)

    def take(self) -> dict[str, Any] | None:
        return None
