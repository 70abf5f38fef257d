"""`edge-specquant models list|show|verify|pairs|remove`: the families on this machine."""

from __future__ import annotations

import json
import sys

import click


@click.group(name="models", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, show, verify, pair and remove families."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_families(as_json: bool) -> None:
    """All families, with their siblings and sizes."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ...errors import FamilyError
    from ...gguf.family.family import Family, family_names
    from ...units import format_bytes
    from ..shared.family_table import family_document

    families, broken = [], []
    for name in family_names():
        try:
            families.append(Family.open(name))
        except FamilyError as error:
            broken.append((name, str(error)))
    if as_json:
        document = {"families": [family_document(f) for f in families], "broken": dict(broken)}
        click.echo(json.dumps(document))
        return
    console = Console(highlight=False)
    if not families and not broken:
        console.print("there is no family yet; make one with: edge-specquant convert demo")
        return
    table = Table("family", "siblings", "size")
    for family in families:
        n_bytes = sum(variant.n_bytes for variant in family.variants.values())
        table.add_row(Text(family.name), Text(", ".join(family.variants)), format_bytes(n_bytes))
    console.print(table)
    for name, reason in broken:
        console.print(Text(f"{name} is broken: {reason}"))


@command.command()
@click.argument("family")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(family: str, as_json: bool) -> None:
    """The siblings of one FAMILY (a name, a folder or a GGUF file) with true bits per weight."""
    from ...gguf.family.family import Family
    from ..shared.family_table import family_document, print_family

    opened = Family.open(family)
    if as_json:
        click.echo(json.dumps(family_document(opened)))
    else:
        print_family(opened)


@command.command()
@click.argument("family")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(family: str, as_json: bool) -> None:
    """Hash every file of FAMILY again and compare with its manifest; exit code 1 when something differs."""
    from ...gguf.family.family import Family
    from ..shared.progress import step_progress

    opened = Family.open(family)
    with step_progress() as report:
        findings = opened.verify(lambda variant, done, total: report(f"hashing {variant}", done, total))
    if as_json:
        rows = [{"subject": f.subject, "ok": f.ok, "detail": f.detail} for f in findings]
        click.echo(json.dumps({"family": opened.name, "ok": all(f.ok for f in findings), "findings": rows}))
    else:
        for finding in findings:
            click.echo(f"{'ok ' if finding.ok else 'BAD'}  {finding.subject}: {finding.detail}")
    if not all(finding.ok for finding in findings):
        sys.exit(1)


@command.command()
@click.argument("family")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pairs(family: str, as_json: bool) -> None:
    """Models of other families here that can draft for FAMILY, with the expected gain."""
    from ...gguf.family.family import Family
    from ...placement.plan.pairs import expected_pairs
    from ..shared.pairs_table import pairs_document, print_pairs

    opened = Family.open(family)
    found = expected_pairs(opened)
    if as_json:
        click.echo(json.dumps(pairs_document(opened.name, found), ensure_ascii=False))
    else:
        print_pairs(opened.name, found)


@command.command()
@click.argument("family")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(family: str, yes: bool) -> None:
    """Delete a FAMILY of the families folder: the files that convert wrote, nothing else."""
    from ...gguf.family.family import remove_family
    from ...units import format_bytes

    if not yes:
        click.confirm(f"delete family '{family}' and its files?", abort=True, err=True)
    n_bytes, left = remove_family(family)
    click.echo(f"removed {family}: {format_bytes(n_bytes)} freed")
    if left:
        click.echo(f"left where they were, since this program did not write them: {', '.join(left[:5])}")
