"""The chat line by line: for any terminal, pipe or screen reader. Reads lines, obeys commands, prints replies.

What is said is kept in the store, as the full screen keeps it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ...tui.answers.dialogue import Dialogue

if TYPE_CHECKING:
    from ...runtime import Runtime
    from ...store import Message, MessageWriter, Store

_HELP = "/regen answers again, /more goes on with a cut answer, /clear starts over, /stats shows figures, /quit leaves"


class PlainChat:
    """The conversation and its commands."""

    def __init__(self, runtime: Runtime, store: Store, system: str | None, **request_fields: Any) -> None:
        self._runtime = runtime
        self._dialogue = Dialogue(store, lambda: request_fields, system)
        self._last_stats = "no reply yet"

    def go_on(self, conversation_id: int) -> None:
        """A stored conversation: its last two messages are shown, and what is said follows. Raises StoreError."""
        from .text import shown

        self._dialogue.open(conversation_id)
        for message in self._dialogue.messages()[-2:]:
            click.secho(message.role, err=True, dim=True)
            click.echo(shown(message.text))

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
            self._dialogue.start_new()
            click.secho("a new conversation", err=True, dim=True)
        elif line == "/stats":
            click.echo(self._last_stats, err=True)
        elif line == "/regen":
            last = self._last_message()
            if last is None:
                click.echo("nothing to answer again", err=True)
            else:
                self._answer(last.id if last.role == "assistant" else None)
        elif line == "/more":
            last = self._last_message()
            if last is None or last.role != "assistant" or last.record.get("finish_reason") == "stop":
                click.echo("there is no answer that was cut", err=True)
            else:
                self._answer(last.id, continued=last)
        elif line.startswith("/"):
            click.echo(f"there is no '{line.split()[0]}'; {_HELP}", err=True)
        elif line:
            self._dialogue.ask(line)
            self._answer()

    def _last_message(self) -> Message | None:
        messages = self._dialogue.messages()
        return messages[-1] if messages else None

    def _answer(self, beside: int | None = None, continued: Message | None = None) -> None:
        """Streams a reply into the store, which keeps a broken one too. beside: another version of that message;
        continued: what it begins with.
        """
        from ...errors import EdgeSpecQuantError, told

        try:
            with self._dialogue.begin_answer(beside) as writer:
                self._stream(writer, continued)
        except EdgeSpecQuantError as error:
            click.echo(told(error), err=True)

    def _stream(self, writer: MessageWriter, continued: Message | None) -> None:
        from ...tui.answers.reply import Reply
        from .reply import events, stats_line
        from .text import shown
        from .thoughts import Thoughts

        request = self._dialogue.request(writer.message_id, continued)
        reply = Reply(ticket=writer.message_id, started=0.0)
        thoughts = Thoughts(hidden=False)
        if continued is not None:
            reply.begin_with(continued)
            writer.append(continued.text, continued.thought)
            click.echo(shown(continued.text), nl=False)
        for event in events(self._runtime, request):
            reply.take([event], 0.0)
            writer.append(event.text, event.thought)
            thoughts.show(event)
            click.echo(shown(event.text), nl=False)
            sys.stdout.flush()
            if event.note:
                click.echo(f"\n{event.note}", err=True)
        click.echo()
        siblings = self._runtime.siblings(request)
        self._last_stats = stats_line(event, *siblings)
        is_whole = event.finish_reason in ("stop", "length")
        extra = {"finish_reason": event.finish_reason} | ({"note": event.note} if event.note else {})
        writer.finish(reply.record(event.stats, *siblings, extra), status="complete" if is_whole else "interrupted")
