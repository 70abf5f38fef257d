"""`edge-specquant run`: one prompt, one streamed reply."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..shared.continuing import LAST, continue_flag, kept_in, preset, with_files
from ..shared.options import generation_flags, take_engine, take_request_fields

if TYPE_CHECKING:
    from ...engine.events import TokenLogprobs


@click.command()
@click.argument("family")
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the chat template.")
@click.option("--prefill", metavar="TEXT", help="How the reply begins; it is gone on with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when done, nothing else.")
@click.option("--hide-thoughts", is_flag=True, help="Do not show what the model thinks before it answers.")
@click.option("--quiet", is_flag=True, help="No line of statistics.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Append every round, for `gamma`.")
@click.option("--task", default="", metavar="LABEL", help="What the recorded rounds are about (code, chat ...).")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="A text file that goes along; repeatable.")
@click.option("--preset", "preset_name", metavar="NAME", help="A preset's system prompt and sampling, as in the chat.")
@continue_flag
@generation_flags
def command(
    family: str,
    prompt: str | None,
    as_json: bool,
    hide_thoughts: bool,
    quiet: bool,
    record: Path | None,
    task: str,
    files: tuple[str, ...],
    preset_name: str | None,
    go_on: str | None,
    **flags: Any,
) -> None:
    """Answer PROMPT (or standard input) with FAMILY and stream the text."""
    from ...request import Request
    from ...runtime import Runtime
    from ..shared.progress import step_progress
    from ..shared.reply import events, stats_line
    from ..shared.text import shown
    from ..shared.thoughts import Thoughts

    engine, fields = replace(take_engine(flags), record=record, record_task=task), take_request_fields(flags)
    if prompt is None and go_on not in (None, LAST) and not go_on.isdecimal():
        prompt, go_on = go_on, LAST  # `--continue "a prompt"`
    if preset_name is not None:
        chosen = preset(preset_name)
        fields, flags["system"] = chosen.applied_to(fields), flags["system"] or chosen.system or None
    request = Request(prompt=with_files(_prompt(prompt), files), **fields, **flags)
    with step_progress() as progress:
        runtime = Runtime.process(family, engine, progress)
    if request.prefill and not as_json:
        click.echo(shown(request.prefill), nl=False)
    texts: list[str] = []
    thoughts: list[str] = []
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    shown_thoughts = Thoughts(hidden=hide_thoughts)
    with runtime, kept_in(go_on, request) as (request, keep):
        target, draft = runtime.siblings(request)
        for event in events(runtime, request):
            texts.append(event.text)
            thoughts.append(event.thought)
            keep(event.text)
            if event.token_id is not None:
                token_ids.append(event.token_id)
            if event.logprobs is not None:
                logprobs.append(event.logprobs)
            if not as_json:
                shown_thoughts.show(event)
                click.echo(shown(event.text), nl=False)
                sys.stdout.flush()
        for notice in runtime.notices:
            click.echo(f"note: {notice}", err=True)
    if event.route is not None:
        target, draft = event.route["target"], event.route["draft"]
    if as_json:
        answer: dict[str, Any] = {
            "text": "".join(texts),
            "thought": "".join(thoughts),
            "token_ids": token_ids,
            "finish_reason": event.finish_reason,
            "target": target,
            "draft": draft,
            "stats": event.stats.as_dict() if event.stats else None,
        }
        answer |= {"prefill": request.prefill} if request.prefill else {}
        answer |= {"logprobs": [asdict(each) for each in logprobs]} if logprobs else {}
        answer |= {"route": event.route} if event.route is not None else {}
        click.echo(json.dumps(answer))
    else:
        click.echo()
        if not quiet:
            click.secho(stats_line(event, target, draft), err=True, dim=True)
    if event.finish_reason == "cancelled":
        raise KeyboardInterrupt


def _prompt(given: str | None) -> str:
    if given is not None and given != "-":
        return given
    if sys.stdin.isatty():
        raise click.UsageError("give a PROMPT, or pipe one into standard input")
    return sys.stdin.buffer.read().decode("utf-8", "replace")
