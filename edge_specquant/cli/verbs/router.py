"""`edge-specquant router`: fit a policy to measurements of one's own prompts, and report what routing did."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import UsageError

if TYPE_CHECKING:
    from ...routing.records.measurements import Measured


@click.group()
def command() -> None:
    """Fit a router to your prompts, and see whether it was right."""


@command.command()
@click.argument("prompts", type=click.Path(path_type=Path))
@click.argument("family")
@click.option(
    "--agreement", "wanted", type=click.FloatRange(0, 1), default=0.95, show_default=True, help="Wanted mean."
)
@click.option("--reply", "n_reply", type=click.IntRange(1, 64), default=48, show_default=True, help="Tokens a reply.")
@click.option("--siblings", default="", metavar="q4,q8", help="Only these, next to the reference (default: all).")
@click.option(
    "--measured", type=click.Path(path_type=Path), help="Measurements to go on with (default: beside PROMPTS)."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Policy file (default: policy FAMILY-fitted of this user)."
)
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice.")
@click.option("--gpu-layers", "n_gpu_layers", type=int, default=0, help="Layers on a GPU; -1 is all.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def fit(
    prompts: Path,
    family: str,
    wanted: float,
    n_reply: int,
    siblings: str,
    measured: Path | None,
    out: Path | None,
    n_threads: int,
    n_gpu_layers: int,
    as_json: bool,
) -> None:
    """Measure FAMILY on PROMPTS (JSONL with a text each) and fit a policy: least time, wanted agreement with F16.

    A stopped run goes on where it was: every prompt's measurement is a line of the --measured file.
    """
    from ...bench.evaluation.prompt_measures import MeasureOptions, measure_prompts
    from ...gguf.convert.convert import ensure_family
    from ...native.library.library import log_sink
    from ...routing.features.features_spacy import SpacySyntax
    from ...routing.learn.fit import fit_policy
    from ...routing.policy.policy import user_policy_path
    from ...routing.policy.policy_file import write_policy
    from ...routing.records.prompts import read_prompts
    from ..shared.progress import step_progress
    from ..shared.route_table import print_fit

    wanted_prompts = read_prompts(prompts)
    with step_progress() as progress:
        opened = ensure_family(family, progress)
    parser = SpacySyntax().start()
    parser.wait(_PARSER_WAIT_S)
    if parser.notice:
        click.echo(f"note: {parser.notice}", err=True)
    log_sink.to_file(_log_file())
    names = tuple(name.strip() for name in siblings.split(",") if name.strip())
    options = MeasureOptions(names, n_reply, n_gpu_layers, n_threads)
    file = measured or prompts.with_name(f"{prompts.stem}.{opened.name}.measured.jsonl")
    found = measure_prompts(opened, wanted_prompts, file, options, parser, _tell)
    result = fit_policy(found, name=f"{opened.name}-fitted", family=opened.name, wanted=wanted)
    path = out or user_policy_path(result.policy.name)
    write_policy(path, result.policy)
    if as_json:
        document = {
            name: getattr(result, name) for name in ("verdict", "notes", "siblings", "advantage", "beats_length")
        }
        click.echo(json.dumps(document | {"rows": [asdict(row) for row in result.rows], "policy": str(path)}))
    else:
        print_fit(result, len(found), str(path))


@command.command()
@click.argument("traffic", type=click.Path(path_type=Path), required=False)
@click.option(
    "--policy", default=None, metavar="NAME|FILE", help="A fitted policy, to say what others would have cost."
)
@click.option(
    "--measured", type=click.Path(path_type=Path), help="Measurements of `fit`: exact figures where they match."
)
@click.option(
    "--prompts", type=click.Path(path_type=Path), help="The prompts of --measured, to find them in the traffic."
)
@click.option(
    "--replay", metavar="NAME|FILE", help="Route the measured prompts by this policy, as if they were traffic."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def report(
    traffic: Path | None,
    policy: str | None,
    measured: Path | None,
    prompts: Path | None,
    replay: str | None,
    as_json: bool,
) -> None:
    """Report on recorded TRAFFIC (default: what this user's replies recorded)."""
    from ...routing.learn.replay import replay_measured
    from ...routing.learn.report import report_traffic
    from ...routing.policy.policy import Policy
    from ...routing.records.record import read_records
    from ..shared.route_table import print_report

    chosen = Policy.load(policy or "fast")
    known = _measured_by_hash(measured, prompts)
    records = replay_measured(known, Policy.load(replay)) if replay else read_records(_recorded(traffic))
    found = report_traffic(records, chosen, known)
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        print_report(found)


_PARSER_WAIT_S = 20.0
_TELL_EVERY = 25


def _measured_by_hash(measured: Path | None, prompts: Path | None) -> dict[str, Measured]:
    if measured is None or prompts is None:
        if measured or prompts:
            raise click.UsageError("--measured and --prompts go together: one holds figures, the other the texts")
        return {}
    from ...routing.records.measurements import read_measured
    from ...routing.records.prompts import read_prompts
    from ...routing.records.record import hash_prompt

    hashes = {prompt.id: hash_prompt(prompt.text) for prompt in read_prompts(prompts)}
    return {hashes[one.id]: one for one in read_measured(measured) if one.id in hashes}


def _tell(done: int, total: int, note: str) -> None:
    """One line that changes on a terminal, a line now and then elsewhere."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {total} prompts measured ({note})\x1b[K", nl=done == total, err=True)
    elif done % _TELL_EVERY == 0 or done == total or "not fit" in note:
        click.echo(f"{done} of {total} prompts measured ({note})", err=True)


def _recorded(traffic: Path | None) -> Path:
    from ...routing.records.record import default_file

    file = traffic or default_file()
    if traffic is None and not file.is_file():
        raise UsageError(f"no reply was recorded yet ({file}); chat with a policy first, or use --replay")
    return file


def _log_file() -> Path:
    from ... import config

    return config.logs_dir() / "engine.log"
