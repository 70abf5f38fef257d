"""Which token ids a reply's text was generated with, so that the next turn reuses them instead of tokenizing anew.

Takes ids and text, gives ids for a message. Knows no template and no cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from ...native.protocol import Vocab

_MAX_HELD_BACK = 16  # a stop string or half a character: tokens at the end of a reply that its text does not show
_MAX_REPLIES = 1000


class ReplyTokens:
    """The last thousand replies, by text; thoughts (the field "reasoning_content") and answers ("content") apart."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str, str], tuple[int, ...]] = OrderedDict()

    def remember(self, text: str, ids: Sequence[int], vocab: Vocab, field: str = "content") -> None:
        """Keeps the ids of a reply, without those at the end that its text does not show."""
        shown = shown_ids(text, ids, vocab)
        if shown:
            key = (field, text.strip())
            self._ids[key] = shown
            self._ids.move_to_end(key)
            if len(self._ids) > _MAX_REPLIES:
                self._ids.popitem(last=False)

    def find(self, message: Mapping[str, Any], vocab: Vocab, field: str = "content") -> Sequence[int] | None:
        """The ids a field was generated with: the content's own `token_ids` if they spell it, else the remembered ones.

        Texts that differ only in white space at their ends count as the same: the ids are what was really said.
        """
        text = str(message.get(field, "")).strip()
        own = message.get("token_ids") if field == "content" else None
        if isinstance(own, (list, tuple)) and all(isinstance(t, int) and not vocab.is_control(t) for t in own):
            ids = shown_ids(text, own, vocab, strip=True)
            if ids:
                return ids
        return self._ids.get((field, text))


def shown_ids(text: str, ids: Sequence[int], vocab: Vocab, *, strip: bool = False) -> tuple[int, ...]:
    """The longest beginning of ids that spells the text; empty when none does."""
    pieces = [vocab.piece(token) for token in ids]
    for n in range(len(ids), max(0, len(ids) - _MAX_HELD_BACK) - 1, -1):
        spelled = b"".join(pieces[:n]).decode("utf-8", "replace")
        if spelled == text or (strip and spelled.strip() == text):
            return tuple(ids[:n])
    return ()
