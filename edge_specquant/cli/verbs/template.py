"""`edge-specquant template`: what a family's chat template can do, and a conversation as tokens with their origins."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command()
@click.argument("family")
@click.option("--template-arg", multiple=True, metavar="NAME=VALUE", help="A variable of the template; JSON or text.")
@click.option("--source", is_flag=True, help="Print the template itself, nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(family: str, template_arg: tuple[str, ...], source: bool, as_json: bool) -> None:
    """Show the chat template of FAMILY, a name or a GGUF file; no weights are loaded.

    A sample conversation follows, token by token: control tokens, the template's own words, and the words of each
    message. Only the template's can be control tokens.
    """
    from dataclasses import asdict

    from ...engine.prompts.features import features_of, sample
    from ...engine.prompts.spelling import spelled
    from ...engine.prompts.template import ChatTemplate, templates_of
    from ...engine.thoughts.style import read_style
    from ...gguf.convert.convert import ensure_family
    from ...native.opening import open_model
    from ..shared.options import parse_template_args
    from ..shared.progress import step_progress
    from ..shared.template_table import print_template

    arguments: dict[str, Any] = parse_template_args(template_arg)
    with step_progress() as progress:
        opened = ensure_family(family, progress)
    smallest = min(opened.variants.values(), key=lambda variant: variant.n_bytes)
    with open_model(opened.path(smallest.name), vocab_only=True) as model:
        template = ChatTemplate(templates_of(model), model.vocab)
        if source:
            for text in template.sources.values():
                click.echo(text)
            return
        features = features_of(template)
        style = read_style(template.source(), model.vocab)
        messages, tools = sample(features)
        tokens = spelled(template.render(messages, tools=tools, **arguments), model.vocab, template.markers(tools))
        if as_json:
            known = {"notice": template.fallback_reason, "messages": messages, "tools": tools}
            thinking = None if style is None else asdict(style)
            found = {**known, "features": asdict(features), "thinking": thinking}
            found["tokens"] = [asdict(token) for token in tokens]
            click.echo(json.dumps(found, ensure_ascii=False))
        else:
            print_template(features, template.fallback_reason, tokens, None if style is None else style.told)
