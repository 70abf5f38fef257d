"""`edge-specquant chat`: a conversation, full screen. `--plain` is line by line, for any terminal, pipe or reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from ...config import load_settings
from ..shared.continuing import continue_flag, conversation_id
from ..shared.options import generation_flags, take_engine, take_request_fields

_WEB_DRIVER = "TEXTUAL_DRIVER"  # set by textual-serve for the program it shows in a browser


@click.command()
@click.argument("family", required=False)
@click.option("--plain", is_flag=True, help="Line by line instead of full screen.")
@click.option("--screen-reader", is_flag=True, help="The same as --plain.")
@click.option("--web", is_flag=True, help="Serve the full screen to a browser on this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=8123, show_default=True, help="Port for --web.")
@click.option("--system", metavar="TEXT", help="System prompt.")
@continue_flag
@generation_flags
def command(
    family: str | None,
    plain: bool,
    screen_reader: bool,
    web: bool,
    port: int,
    system: str | None,
    go_on: str | None,
    **flags: Any,
) -> None:
    """Talk with FAMILY (default: the one last used). A NO_COLOR, dumb or absent terminal gets the plain chat."""
    if web:
        _serve(port)
        return
    chat = load_settings({"chat.family": family, "chat.system": system}).settings.chat
    if plain or screen_reader or needs_plain(os.environ, sys.stdin.isatty() and sys.stdout.isatty()):
        _talk_plainly(chat.family or "demo", chat.system or None, go_on, flags)
    else:
        _talk_full_screen(chat.family, chat.system or None, go_on, flags)


def needs_plain(environment: Mapping[str, str], is_terminal: bool) -> bool:
    """Whether the full screen would be wrong here."""
    if environment.get(_WEB_DRIVER):
        return False
    return not is_terminal or bool(environment.get("NO_COLOR")) or environment.get("TERM") in ("dumb", "unknown")


def _talk_plainly(family: str, system: str | None, go_on: str | None, flags: dict[str, Any]) -> None:
    from ...printable import shown
    from ...runtime import Runtime
    from ...store import open_store
    from ..shared.plain_chat import PlainChat
    from ..shared.progress import step_progress

    engine = take_engine(flags)
    with step_progress() as progress:
        runtime = Runtime.process(family, engine, progress)
    with runtime, open_store(load_settings().settings.store) as store:
        if store.notice:
            click.echo(shown(store.notice), err=True)
        talk = PlainChat(runtime, store, system, **take_request_fields(flags))
        if go_on is not None:
            talk.go_on(conversation_id(store, go_on))
        talk.loop()


def _talk_full_screen(family: str | None, system: str | None, go_on: str | None, flags: dict[str, Any]) -> None:
    from ...tui.launch import run_chat, settings_for

    fields = take_request_fields(flags)
    settings = settings_for(family, system, lambda: take_engine(dict(flags)), fields)
    first = None if go_on is None else lambda store: conversation_id(store, go_on)
    run_chat(replace(settings, first_conversation=first))


def _serve(port: int) -> None:
    from ...tui.web.web import serve

    arguments = [argument for argument in sys.argv[1:] if argument != "--web"]
    serve(arguments or ["chat"], port, click.echo)
