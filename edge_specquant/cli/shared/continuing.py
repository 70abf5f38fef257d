"""Flags that go on with what is kept: a stored conversation, files that go along with a prompt, a preset by name.

Takes what a person typed, gives ids, prompts and presets. Knows no engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...errors import UsageError

if TYPE_CHECKING:
    from ...request import Request
    from ...store import Store
    from ...tui.choosing.presets import Preset

LAST = "last"


def continue_flag(command: Callable[..., Any]) -> Callable[..., Any]:
    """--continue [ID] as `go_on`: None, LAST or what was typed."""
    text = "Go on with the last conversation, or with the one of this number (`history list`)."
    return click.option("--continue", "go_on", is_flag=False, flag_value=LAST, metavar="[ID]", help=text)(command)


def conversation_id(store: Store, go_on: str) -> int:
    """The conversation that is meant. Raises UsageError where there is none, StoreError for a number there is not."""
    if go_on.isdecimal():
        return store.conversation(int(go_on)).id
    if go_on != LAST:
        raise UsageError(f"--continue takes a conversation's number, not '{go_on}'; see: edge-specquant history list")
    found = store.conversations()
    if not found:
        raise UsageError("there is no conversation yet to go on with")
    return max(found, key=lambda conversation: conversation.updated_at).id


def with_files(prompt: str, files: Sequence[str]) -> str:
    """The prompt behind its files, each with its name, as the chat attaches them. Raises FileError, UsageError."""
    from ...tui.answers.attachments import read_attachment, with_attachments

    return with_attachments(prompt, tuple(read_attachment(file) for file in files))


def preset(name: str) -> Preset:
    """A preset of the program or of the person's own. Raises UsageError for one there is not."""
    from ...tui.choosing import own_presets
    from ...tui.choosing.presets import PRESETS

    known = (*PRESETS, *own_presets.load(own_presets.default_path()).presets)
    for each in known:
        if each.name == name:
            return each
    raise UsageError(f"there is no preset '{name}'; there are {', '.join(each.name for each in known)}")


@contextlib.contextmanager
def kept_in(go_on: str | None, request: Request) -> Iterator[tuple[Request, Callable[[str], None]]]:
    """The request with a conversation before it, and what keeps its answer there; without `go_on` nothing is kept."""
    if go_on is None:
        yield request, lambda _: None
        return
    from ...config import load_settings
    from ...store import open_store
    from ...tui.answers.dialogue import Dialogue

    with open_store(load_settings().settings.store) as store:
        dialogue = Dialogue(store, dict)
        dialogue.open(conversation_id(store, go_on))
        dialogue.ask(request.prompt or "")
        with dialogue.begin_answer() as writer:
            above = dialogue.request(writer.message_id)
            system = request.system or above.system
            yield replace(request, prompt=None, messages=above.messages, system=system), writer.append
