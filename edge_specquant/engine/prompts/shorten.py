"""What a full context forgets: whole turns of a conversation, the oldest first, or the older half of a raw text.

Takes messages with their sizes, or token ids; gives what is kept. Which turns stay is a function of the conversation
alone, and stays the same while it grows, so that the cells of the next turn fit. Knows no template and no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

Shorten = Callable[[Sequence[int], int, int], "tuple[list[int], int] | None"]
"""(history, how much of it is the prompt, n_ctx) to a shorter history and its prompt's length; None: nothing can go."""

_PROMPT_SHARE = 0.75
"""Of the context; what turns and the reply so far may take after some were forgotten, so that a while passes."""


def split_turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """(what comes before the first user speaks, turns): a turn is a user's message and all that follows upon it."""
    head: list[Message] = []
    turns: list[list[Message]] = []
    for message in messages:
        if message.get("role") == "user":
            turns.append([message])
        else:
            (turns[-1] if turns else head).append(message)
    return head, turns


def n_forgotten(sizes: Sequence[int], n_fixed: int, n_said: int, n_ctx: int) -> int:
    """How many of the oldest turns to leave out. sizes: tokens of each turn; n_fixed: of what always stays; n_said: of
    the reply so far. The last turn always stays.

    The conversation is gone through as it grew: whenever a turn no longer fitted, the oldest ones went until a share
    of the context was free. So the answer for a longer conversation begins with that for a shorter one.
    """
    n_gone = 0
    for last in range(len(sizes)):
        n_now = n_said if last == len(sizes) - 1 else 0
        if n_fixed + sum(sizes[n_gone : last + 1]) + n_now >= n_ctx:
            while n_gone < last and n_fixed + sum(sizes[n_gone : last + 1]) + n_now > _PROMPT_SHARE * n_ctx:
                n_gone += 1
    return n_gone


def forget_older_half(n_keep: int) -> Shorten:
    """For a text without turns: the first n_keep tokens stay, the older half of the rest goes."""

    def shorten(history: Sequence[int], n_prompt: int, n_ctx: int) -> tuple[list[int], int] | None:
        keep = min(n_keep, n_ctx // 2)
        begin = max((len(history) - keep) // 2, len(history) - n_ctx + 1) + keep
        return [*history[:keep], *history[begin:]], max(keep, n_prompt - (begin - keep))

    return shorten
