"""The root command: finds verbs lazily, turns errors of our tree into one sentence and exit code 1.

A verb is a module of this folder that defines a click command called `command`; its name is the module's name, with
dashes for underscores.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path

import click

from .. import __version__
from ..errors import EdgeSpecQuantError, told
from ..streams import any_text

COLOURLESS = ("vt1", "vt2", "vt3", "vt4", "vt5")  # terminals of the VT series


class VerbGroup(click.Group):
    """Imports a verb's module only when the verb is used or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "verbs")]))
        return sorted(name.replace("_", "-") for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{__package__}.verbs.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            ctx.fail(f"there is no command '{args[0]}'; the commands are {', '.join(self.list_commands(ctx))}")


@click.group(cls=VerbGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="edge-specquant")
@click.pass_context
def root(ctx: click.Context, debug: bool) -> None:
    """One checkpoint in, a family of GGUF siblings out, and the fastest honest way to chat with them.

    Without a command: the chat.
    """
    ctx.obj = {"debug": debug}
    if os.environ.get("TERM", "").startswith(COLOURLESS):
        os.environ.setdefault("NO_COLOR", "1")  # for rich, and for the chat, which is plain then
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if ctx.invoked_subcommand is None:
        chat = ctx.command.get_command(ctx, "chat")  # type: ignore[attr-defined]
        ctx.invoke(chat)


def main(args: list[str] | None = None) -> None:
    """Console entry point. Exit codes: 0 done, 1 failed with a sentence, 2 bad usage, 130 interrupted."""
    arguments = sys.argv[1:] if args is None else args
    with any_text():
        _obey(arguments)


def _obey(arguments: list[str]) -> None:
    try:
        root.main(args=arguments, prog_name="edge-specquant", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nstopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except EdgeSpecQuantError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        click.echo(told(error), err=True)
        sys.exit(1)
