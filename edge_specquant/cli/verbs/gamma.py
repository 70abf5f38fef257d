"""`edge-specquant gamma`: train the network of the speckv controller on recorded rounds, and judge draft lengths."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

_OBJECTIVES = ("tokens", "rate")


@click.group()
def command() -> None:
    """Learn how long to draft from rounds recorded with `run --record`.

    Record full-length drafts: edge-specquant run FAMILY PROMPT --draft q4 --n-draft 8 --record TRACES
    """


@command.command()
@click.argument("traces", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File of the network (default: where speckv looks).")
@click.option(
    "--objective",
    type=click.Choice(_OBJECTIVES),
    default="rate",
    show_default=True,
    help="What the controller maximises: tokens a second (rate), or a round as in the paper (tokens).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the network's start and the held-out replies.")
def train(traces: Path, out: Path | None, objective: str, seed: int) -> None:
    """Train the network on TRACES; replies with --controller speckv use it from then on."""
    from ...engine.control.speckv.speckv import user_predictor_path
    from ...engine.control.speckv.speckv_training import train as train_network
    from ...engine.control.traces import read_traces
    from ...gguf.format.atomic import write_text_whole

    predictor, fit = train_network(read_traces(traces), objective, seed=seed)
    path = out or user_predictor_path()
    write_text_whole(path, predictor.as_text())
    click.echo(f"trained on {predictor.trained_on}")
    click.echo(f"{fit.n_epochs} epochs; root mean squared error on held-out replies {fit.validation_error**0.5:.3f}")
    click.echo(f"network written: {path}")


@command.command()
@click.argument("traces", type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="Judge this network, not cross-fitted ones.")
@click.option("--family", help="Only the rounds of this family.")
@click.option("--target", help="Only the rounds of this target.")
@click.option("--verify-ms", metavar="1:25,3:60,...", help="Target's forward by width, in ms (default: as recorded).")
@click.option("--draft-ms", type=float, help="One draft token, in ms; goes with --verify-ms.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def evaluate(
    traces: Path,
    model: Path | None,
    family: str | None,
    target: str | None,
    verify_ms: str | None,
    draft_ms: float | None,
    as_json: bool,
) -> None:
    """What each policy would have done on TRACES: tokens a round and tokens a second, with 95 % intervals.

    Without --verify-ms the costs are medians of TRACES itself, if plain rounds (--draft none) are among them.
    """
    from ...bench.papers.draft_length_policies import measured_costs, pair_of, parse_costs
    from ...bench.papers.draft_length_report import evaluate as evaluate_policies
    from ...engine.control.speckv.speckv import read_predictor
    from ...engine.control.traces import read_traces
    from ...errors import UsageError
    from ..shared.draft_length_table import print_report

    if (verify_ms is None) != (draft_ms is None):
        raise click.UsageError("--verify-ms and --draft-ms go together")
    found = read_traces(traces)
    rounds = [each for each in found if family in (None, each.family) and target in (None, each.target)]
    if not rounds:
        known = ", ".join(sorted({f"{each.family} {each.target}" for each in found}))
        raise UsageError(
            f"{traces} has no rounds of family {family or 'any'}, target {target or 'any'}; it has {known}"
        )
    if verify_ms is not None and draft_ms is not None:
        given = parse_costs(verify_ms, draft_ms)
        costs, costs_from = {pair_of(each): given for each in rounds}, "as given"
    else:
        costs = measured_costs(rounds)
        costs_from = "medians of the recorded rounds" if costs else "unknown, as no plain rounds were recorded"
    report = evaluate_policies(rounds, costs, read_predictor(model) if model else None)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        print_report(report, costs_from)
