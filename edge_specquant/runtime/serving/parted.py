"""A reply's events gathered: what was thought, what was answered, and the token ids of each. Knows no engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...engine.events import TokenEvent

THOUGHT = "thought"


@dataclass(slots=True)
class Parted:
    """Feed it every event. text is the answer; thought_ids are without the tokens that show nothing of the thought at
    its beginning (its marker).
    """

    token_ids: list[int] = field(default_factory=list)
    answer_ids: list[int] = field(default_factory=list)
    thought_ids: list[int] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)

    def take(self, event: TokenEvent) -> None:
        """Adds an event."""
        if event.text:
            self._texts.append(event.text)
        if event.thought:
            self._thoughts.append(event.thought)
        if event.token_id is None:
            return
        self.token_ids.append(event.token_id)
        if event.part != THOUGHT:
            self.answer_ids.append(event.token_id)
        elif self._thoughts:
            self.thought_ids.append(event.token_id)

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(self._texts)

    @property
    def thought(self) -> str:
        """What was thought before it."""
        return "".join(self._thoughts)
