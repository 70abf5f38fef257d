"""`edge-specquant history list|show|search|export|import|delete|restore|purge`: the conversations kept on disk."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...store import Conversation, ConversationCopy, Message, Store

_json_flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_limit_flag = click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most entries.")


@click.group(name="history", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, read, search, export, import and delete conversations."""


@command.command(name="list")
@click.option("--deleted", is_flag=True, help="Those that were deleted and not purged.")
@_limit_flag
@_json_flag
def list_conversations(deleted: bool, limit: int, as_json: bool) -> None:
    """Pinned ones first, then the last used."""
    with _opened() as store:
        found = store.conversations(deleted=deleted, limit=limit)
    if as_json:
        click.echo(json.dumps({"conversations": [_document(conversation) for conversation in found]}))
        return
    for conversation in found:
        mark = "*" if conversation.pinned else " "
        n_messages = f"{conversation.n_messages} messages"
        title = _one_line(conversation.title) or "(no title)"
        click.echo(f"{conversation.id:>5} {mark} {_when(conversation.updated_at)}  {n_messages:>13}  {title}")
    if not found:
        click.echo("there is no deleted conversation" if deleted else "there is no conversation yet", err=True)


@command.command()
@click.argument("conversation", type=int)
@_json_flag
def show(conversation: int, as_json: bool) -> None:
    """The branch on show of CONVERSATION (its number in the list)."""
    from ...printable import shown

    with _opened() as store:
        head, messages = store.conversation(conversation), store.messages(conversation)
        versions = [[version.id for version in store.siblings(message.id)] for message in messages]
    if as_json:
        document = {**_document(head), "messages": [_message_document(message) for message in messages]}
        click.echo(json.dumps(document))
        return
    click.secho(_one_line(head.title) or "(no title)", bold=True)
    if head.system:
        click.echo(f"\nsystem prompt\n{shown(head.system)}")
    for message, ids in zip(messages, versions, strict=True):
        click.echo()
        click.secho(_heading(message, ids), dim=True)
        click.echo(shown(message.text))


@command.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--thoughts", is_flag=True, help="Also in what models thought.")
@_limit_flag
@_json_flag
def search(words: tuple[str, ...], thoughts: bool, limit: int, as_json: bool) -> None:
    """Titles and messages that hold all WORDS, in any case; quotes make a phrase."""
    with _opened() as store:
        hits = store.search(" ".join(words), limit=limit, thoughts=thoughts)
    if as_json:
        found = [
            {
                "conversation": hit.conversation.id,
                "title": hit.conversation.title,
                "message": None if hit.message is None else hit.message.id,
                "excerpt": hit.excerpt,
            }
            for hit in hits
        ]
        click.echo(json.dumps({"hits": found}))
        return
    for hit in hits:
        place = "title" if hit.message is None else hit.message.role
        click.echo(f"{hit.conversation.id:>5}  {place:<9}  {_one_line(hit.excerpt)}")
    if not hits:
        click.echo("nothing found", err=True)


@command.command()
@click.argument("conversations", type=int, nargs=-1)
@click.option("--all", "take_all", is_flag=True, help="Every conversation (JSON only).")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A file, .md or .json; standard output otherwise."
)
@click.option("--format", "form", type=click.Choice(["md", "json"]), help="md: branch on show; json: everything.")
@click.option("--thoughts", is_flag=True, help="With what models thought.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def export(
    conversations: tuple[int, ...], take_all: bool, output: Path | None, form: str | None, thoughts: bool, force: bool
) -> None:
    """Write CONVERSATIONS as Markdown (one, to read) or JSON (any number, with all branches and records)."""
    from ...errors import FileError, UsageError
    from ...gguf.format.atomic import written_whole
    from ...store.rows.copies import without_thoughts

    by_name = {".md": "md", ".markdown": "md", ".json": "json"}.get(output.suffix.lower()) if output else None
    form = form or by_name or ("json" if take_all or len(conversations) != 1 else "md")
    if not conversations and not take_all:
        raise UsageError("name at least one conversation by its number, or --all; see: edge-specquant history list")
    if output is not None and output.exists() and not force:
        raise FileError(f"{output} exists; name another file or add --force")
    with _opened() as store:
        numbers = [c.id for c in store.conversations()] if take_all else conversations
        copies = [store.copy(number) for number in numbers]
        text = _as_file(copies if thoughts else [without_thoughts(copy) for copy in copies], form)
    if output is None:
        _print_file(text)
        return
    with written_whole(output.absolute()) as partial:
        partial.write_bytes(text.encode("utf-8"))
    click.echo(f"wrote {output}", err=True)


@command.command(name="import")
@click.argument("files", nargs=-1, required=True)
def import_files(files: tuple[str, ...]) -> None:
    """Add the conversations of FILES (Markdown or JSON as exported; - is standard input) as new ones."""
    copies = [copy for file in files for copy in _from_file(file)]
    with _opened(writes=True) as store:
        added = store.add_copies(copies)
    for conversation in added:
        title = _one_line(conversation.title) or "(no title)"
        click.echo(f"{conversation.id:>5}  {conversation.n_messages} messages  {title}")


@command.command()
@click.argument("conversations", type=int, nargs=-1, required=True)
def delete(conversations: tuple[int, ...]) -> None:
    """Hide CONVERSATIONS; `restore` brings them back, `purge` removes them for good."""
    with _opened(writes=True) as store:
        for number in conversations:
            store.delete(number)
    click.echo("deleted; undo with: edge-specquant history restore " + " ".join(map(str, conversations)), err=True)


@command.command()
@click.argument("conversations", type=int, nargs=-1, required=True)
def restore(conversations: tuple[int, ...]) -> None:
    """Bring deleted CONVERSATIONS back."""
    from ...store import Deletion

    with _opened(writes=True) as store:
        for number in conversations:
            store.undo(Deletion(number, None, None))


@command.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(yes: bool) -> None:
    """Remove what was deleted for good, from the file and its backups."""
    if not yes:
        click.confirm("Remove all deleted conversations and messages for good?", abort=True)
    with _opened(writes=True) as store:
        n_removed = store.purge()
    click.echo(f"removed {n_removed} conversations and messages")


@contextlib.contextmanager
def _opened(*, writes: bool = False) -> Iterator[Store]:
    """The store of the settings. What it has to say goes to standard error; a change that would be lost is an error."""
    from dataclasses import replace

    from ...config import load_settings, store_path
    from ...errors import StoreError
    from ...printable import shown
    from ...store import open_store

    settings = replace(load_settings().settings.store, enabled=True)  # also reads what was kept before
    with open_store(settings) as store:
        if store.notice and store.is_in_memory and writes:
            raise StoreError(store.notice)
        if store.notice:
            click.echo(shown(store.notice), err=True)
        yield store
    if writes and store.is_in_memory:  # the disk was full, and closing could not bring the change home
        raise StoreError(f"nothing was changed: {settings.path or store_path()} could not be written; free some space")


def _as_file(copies: list[ConversationCopy], form: str) -> str:
    from ...errors import UsageError
    from ...store.formats.markdown import to_markdown
    from ...store.formats.portable import to_json_text

    if form == "json":
        return to_json_text(copies)
    if len(copies) != 1:
        raise UsageError(f"Markdown holds one conversation, and {len(copies)} were named; use --format json")
    return to_markdown(copies[0])


def _from_file(file: str) -> list[ConversationCopy]:
    from ...errors import FileError, StoreError
    from ...store.formats.markdown import from_markdown
    from ...store.formats.portable import from_json_text

    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not UTF-8 text (byte {error.start}); export writes UTF-8") from error
    try:
        return from_json_text(text) if text.lstrip()[:1] == "{" else [from_markdown(text)]
    except StoreError as error:
        raise StoreError(f"{file}: {error}") from error


def _print_file(text: str) -> None:
    """Exactly the file to a pipe; to a terminal with control characters shown."""
    from ...printable import shown

    if sys.stdout.isatty():
        click.echo(shown(text), nl=False)
    else:
        click.echo(text.encode("utf-8"), nl=False)


def _heading(message: Message, versions: list[int]) -> str:
    parts = [message.role, _when(message.created_at)]
    if message.status != "complete":
        parts.append(message.status)
    if len(versions) > 1:
        parts.append(f"version {versions.index(message.id) + 1} of {len(versions)}")
    return " · ".join(parts)


def _document(conversation: Conversation) -> dict[str, object]:
    names = ("id", "title", "system", "pinned", "created_at", "updated_at", "n_messages")
    return {**{name: getattr(conversation, name) for name in names}, "preset": dict(conversation.preset)}


def _message_document(message: Message) -> dict[str, object]:
    names = ("id", "parent_id", "role", "text", "status", "created_at")
    return {**{name: getattr(message, name) for name in names}, "record": dict(message.record)}


def _one_line(text: str) -> str:
    from ...printable import shown

    return shown(" ".join(text.split()))


def _when(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # an imported file may hold any number
        return "????-??-?? ??:??"
