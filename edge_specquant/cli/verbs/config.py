"""`edge-specquant config show|path|set|unset`: every setting, its value and where it came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click


@click.group(name="config", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show and change settings.

    A value comes from the settings file, then the environment (EDGE_SPECQUANT_SECTION_KEY), then flags; the later wins.
    """


@command.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--secrets", is_flag=True, help="Show keys and passwords too.")
def show(name: str | None, as_json: bool, secrets: bool) -> None:
    """All settings, or those of one section or NAME: value and origin."""
    from ...config import load_settings
    from ...config.load import known_key
    from ...config.settings import keys
    from ..shared.text import shown

    loaded = load_settings()
    wanted = [key for key in keys() if name in (None, key.section)] or [known_key(name or "")]
    rows = []
    for key in wanted:
        value = loaded.value(key)
        hidden = key.is_secret and value is not None and not secrets
        rows.append((key, "(hidden)" if hidden else value, loaded.origins[key.dotted]))
    if as_json:
        settings = {k.dotted: {"value": v, "origin": origin, "meaning": k.meaning} for k, v, origin in rows}
        click.echo(json.dumps({"path": str(loaded.path), "notice": loaded.notice, "settings": settings}))
        return
    cells = [(key.dotted, _as_text(value), origin) for key, value, origin in rows]
    widths = [min(48, max(len(row[column]) for row in cells)) for column in (0, 1)]
    for dotted, value_text, origin in cells:
        click.echo(shown(f"{dotted:<{widths[0]}}  {value_text:<{widths[1]}}  {origin}"))
    if loaded.notice:
        click.echo(shown(loaded.notice), err=True)


@command.command()
def path() -> None:
    """The settings file; it need not exist."""
    from ...config import settings_path

    click.echo(str(settings_path()))


@command.command(name="set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value")
def set_value(name: str, value: str) -> None:
    """Set NAME (such as chat.temperature) to VALUE in the settings file; all else in it stays as it is."""
    from ...config.edit import with_value
    from ...config.load import from_word, known_key

    key = known_key(name)
    typed = from_word(key, value, "the value given")
    assert isinstance(typed, (bool, int, float, str))
    _rewrite(lambda text, file: with_value(text, key, typed, file))


@command.command()
@click.argument("name")
def unset(name: str) -> None:
    """Remove NAME from the settings file, so that its default holds again."""
    from ...config.edit import without_value
    from ...config.load import known_key

    key = known_key(name)
    _rewrite(lambda text, file: without_value(text, key, file))


def _rewrite(change: Callable[[str, Path], str]) -> None:
    """Replaces the file at once. It may hold an API key, so a new one is private, and an old one keeps its mode."""
    from ...config import settings_path
    from ...errors import SettingsError
    from ...gguf.format.atomic import written_whole

    target = settings_path().resolve()  # a link to a file kept elsewhere stays a link
    try:
        text = target.read_bytes().decode("utf-8") if target.exists() else ""
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{target} cannot be read: {error}") from error
    changed = change(text, target)
    if changed == text:
        return
    with written_whole(target) as partial:
        partial.touch(mode=0o600)
        partial.write_bytes(changed.encode("utf-8"))
        partial.chmod(mode)


def _as_text(value: object) -> str:
    """A value as the settings file spells it; '-' when the program decides."""
    if value is None:
        return "-"
    return json.dumps(value, ensure_ascii=False)
