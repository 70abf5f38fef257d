"""What a model thinks, beside its answer on a terminal: dimmed, on standard error. A pipe gets the answer alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .text import shown

if TYPE_CHECKING:
    from ...engine.events import TokenEvent


class Thoughts:
    """Feed it every event before its answer is printed."""

    def __init__(self, *, hidden: bool) -> None:
        self._hidden = hidden
        self._is_open = False

    def show(self, event: TokenEvent) -> None:
        """Prints what the event adds to the thought, and an empty line where the answer begins."""
        if self._hidden:
            return
        if event.thought:
            click.secho(shown(event.thought), err=True, dim=True, nl=False)
            self._is_open = True
        if self._is_open and (event.text or event.finish_reason):
            click.echo("\n", err=True)
            self._is_open = False
