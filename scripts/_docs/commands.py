"""Walks the click commands. Gives each with its full name; knows no output format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from edge_specquant.cli.main import root

PROGRAM = "edge-specquant"


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: its full name ("edge-specquant models list"), the command, and its click context."""

    name: str
    command: click.Command
    context: click.Context

    @property
    def usage(self) -> str:
        """'edge-specquant models show [OPTIONS] FAMILY'."""
        return " ".join([self.name, *self.command.collect_usage_pieces(self.context)])

    @property
    def paragraphs(self) -> list[str]:
        """The help text, a paragraph each, without the line breaks of the source."""
        text = (self.command.help or "").replace("\b", "").split("\f")[0]
        return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]

    @property
    def options(self) -> list[tuple[str, str]]:
        """What is written and what it means, for each option that is shown; --help is left to the reader."""
        named = (parameter for parameter in self.command.params if isinstance(parameter, click.Option))
        records = (option.get_help_record(self.context) for option in named)
        return [record for record in records if record is not None]

    @property
    def flags(self) -> frozenset[str]:
        """Every spelling of every option."""
        parameters = self.command.get_params(self.context)
        return frozenset(flag for each in parameters for flag in (*each.opts, *each.secondary_opts))

    @property
    def subcommands(self) -> list[str]:
        return self.command.list_commands(self.context) if isinstance(self.command, click.Group) else []


def verbs() -> Iterator[Verb]:
    """The program itself, then every command below it, groups before their members."""
    yield from _walk(PROGRAM, root, None)


def _walk(name: str, command: click.Command, parent: click.Context | None) -> Iterator[Verb]:
    # Wide, so that option names are not broken.
    context = click.Context(
        command, parent=parent, info_name=name.split()[-1], terminal_width=200, **command.context_settings
    )
    yield Verb(name, command, context)
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            member = command.get_command(context, sub)
            assert member is not None, f"{name} lists '{sub}' and does not have it"
            yield from _walk(f"{name} {sub}", member, context)
