"""The chat line by line: for any terminal, pipe or screen reader. Reads lines, obeys commands, prints replies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..runtime import Runtime

_HELP = "/regen answers again, /clear starts over, /stats shows figures, /quit leaves"


class PlainChat:
    """The conversation and its commands."""

    def __init__(self, runtime: Runtime, system: str | None, **request_fields: Any) -> None:
        self._runtime = runtime
        self._system = system
        self._fields = request_fields
        self._messages: list[dict[str, str]] = []
        self._last_stats = "no reply yet"

    def loop(self) -> None:
        """Reads lines until /quit or the end of input."""
        click.secho(_HELP, err=True, dim=True)
        while (line := self._read()) is not None:
            if line == "/quit":
                return
            self._obey(line)

    def _read(self) -> str | None:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return None

    def _obey(self, line: str) -> None:
        if line == "/clear":
            self._messages.clear()
            click.secho("a new conversation", err=True, dim=True)
        elif line == "/stats":
            click.echo(self._last_stats, err=True)
        elif line == "/regen":
            if self._messages and self._messages[-1]["role"] == "assistant":
                self._messages.pop()
            if self._messages:
                self._answer()
            else:
                click.echo("nothing to answer again", err=True)
        elif line.startswith("/"):
            click.echo(f"there is no '{line.split()[0]}'; {_HELP}", err=True)
        elif line:
            self._messages.append({"role": "user", "content": line})
            self._answer()

    def _answer(self) -> None:
        """Streams a reply and remembers it; a failed or cancelled one keeps what was said."""
        from ..errors import EdgeSpecQuantError
        from ..request import Request
        from ._reply import events, stats_line
        from ._text import shown

        request = Request(messages=tuple(self._messages), system=self._system, **self._fields)
        texts: list[str] = []
        try:
            for event in events(self._runtime, request):
                texts.append(event.text)
                click.echo(shown(event.text), nl=False)
                sys.stdout.flush()
        except EdgeSpecQuantError as error:
            click.echo(f"error: {error}", err=True)
            return
        click.echo()
        self._last_stats = stats_line(event, *self._runtime.siblings(request))
        self._messages.append({"role": "assistant", "content": "".join(texts)})
