"""`edge-specquant route`: which siblings a policy would put to work on a prompt, and why."""

from __future__ import annotations

import json
import sys

import click


@click.command()
@click.argument("prompt", required=False)
@click.option("--policy", default="fast", show_default=True, metavar="NAME|FILE", help="A policy's name or TOML file.")
@click.option("--family", metavar="NAME", help="Counts tokens with this family and routes to what it holds.")
@click.option("--override", metavar="CHOICE", help="A tier, a variant, or target/draft/controller.")
@click.option("--turns", type=click.IntRange(0), default=0, help="Messages before this one.")
@click.option("--max-tokens", type=click.IntRange(0), help="Limit of the reply.")
@click.option("--explain", is_flag=True, help="Show features, score and thresholds.")
@click.option("--json", "as_json", is_flag=True, help="Print the route record as JSON.")
def command(
    prompt: str | None,
    policy: str,
    family: str | None,
    override: str | None,
    turns: int,
    max_tokens: int | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Show the route of PROMPT (or of standard input); nothing is generated."""
    from ...routing.features.features import extract
    from ...routing.features.features_spacy import SpacySyntax
    from ...routing.policy.policy import Policy
    from ...routing.router import route
    from ..shared.route_table import print_route

    text = _prompt(prompt)
    chosen = Policy.load(policy)
    parser = SpacySyntax().start()
    n_tokens, variants = _tokens_and_variants(text, family)
    parser.wait(_PARSER_WAIT_S)
    features = extract(text, n_tokens=n_tokens, history_turns=turns, max_output=max_tokens, estimator=parser)
    found = route(features, chosen, available=variants, override=override)
    if parser.notice and explain and not as_json:
        click.echo(f"note: {parser.notice}", err=True)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        print_route(found, chosen, explain=explain, counted=family is not None)


_PARSER_WAIT_S = 20.0  # this verb is for looking, so it waits for the better estimator; replies never do
_USUAL_VARIANTS = ("q4", "q8", "f16")


def _tokens_and_variants(text: str, family: str | None) -> tuple[int, tuple[str, ...]]:
    if family is None:
        from ...routing.features.sample import estimate_tokens

        return estimate_tokens(text), _USUAL_VARIANTS
    from ...gguf.family.family import Family
    from ...native.opening import open_model

    opened = Family.open(family)
    variants = tuple(opened.variants)
    model = open_model(opened.path(variants[-1]), vocab_only=True)
    try:
        return len(model.vocab.tokenize(text)), variants
    finally:
        model.close()


def _prompt(given: str | None) -> str:
    if given is not None and given != "-":
        return given
    if sys.stdin.isatty():
        raise click.UsageError("give a PROMPT, or pipe one into standard input")
    return sys.stdin.buffer.read().decode("utf-8", "replace")
