"""`edge-specquant convert SOURCE`: one checkpoint in, a family of GGUF siblings out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...gguf.convert.convert import ConvertPlan
    from ...gguf.family.family import Family
    from ..shared.progress import StepProgress


@click.command(name="convert", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source")
@click.option("--name", help="Name of the family; by default the name of the source.")
@click.option("--variants", default="f16,q8,q4", show_default=True, help="Siblings to make, with commas between.")
@click.option("--keep-sensitive", is_flag=True, help="Keep the most sensitive tensors at more bits (for a target).")
@click.option("--imatrix", metavar="auto|FILE", help='Weigh the quantization by importance: "auto" measures it here.')
@click.option("--calibration", metavar="FILE", help="Text for --imatrix auto; by default one that comes along.")
@click.option("--nested", is_flag=True, help="Add a 4-bit base and, around it, the 8-bit target that refines it.")
@click.option(
    "--residual",
    type=click.Choice(["tied", "q4_0", "q8_0"]),
    default="tied",
    show_default=True,
    help="What refines the base: 8.5, 9 or 13 bits a weight for both together.",
)
@click.option(
    "--draft-layers",
    metavar="auto|N,N",
    help='Add a draft without some layers: "auto" searches which, and adds it only if it beats the plain 4-bit draft.',
)
@click.option("--pre", metavar="NAME", help="Pre-tokenizer of a checkpoint whose own is not recognised.")
@click.option("--quality/--no-quality", default=True, help="Measure each sibling on held-out text (the default).")
@click.option("--threads", default=0, show_default="all cores", help="Threads of the quantizer.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, tensor by tensor, and write nothing.")
@click.option("--force", is_flag=True, help="Make every sibling anew, also in place of another family of this name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    source: str,
    name: str | None,
    variants: str,
    keep_sensitive: bool,
    imatrix: str | None,
    calibration: str | None,
    nested: bool,
    residual: str,
    draft_layers: str | None,
    pre: str | None,
    quality: bool,
    threads: int,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Make a family of GGUF siblings from SOURCE.

    SOURCE is the word "demo", a GGUF file (any shard of a split one), a Hugging Face folder with safetensors, or a hub
    id like org/name or org/name@revision.
    """
    from ...gguf.convert.convert import ConvertOptions, convert, open_source, plan_conversion
    from ...gguf.convert.nested_family import add_nested
    from ..shared.progress import step_progress

    wanted = [variant.strip() for variant in variants.split(",") if variant.strip()]
    if calibration is not None and imatrix != "auto":
        raise click.UsageError("--calibration is the text for --imatrix auto; give both, or none")
    with step_progress() as report:
        opened = open_source(source, pre=pre, say=lambda step: report(step, 0, 0))
        plan = plan_conversion(opened, name, wanted, spare_sensitive=keep_sensitive)
        if not dry_run:
            options = ConvertOptions(
                force=force,
                n_threads=threads,
                imatrix=imatrix,
                calibration=None if calibration is None else Path(calibration),
                measure=quality,
            )
            family = convert(plan, options, report)
            if nested:
                family = add_nested(
                    family, kind=residual, force=force, measure=quality, n_threads=threads, progress=report
                )
            if draft_layers:
                family, said = _skip_layers(family, draft_layers, quality, threads, report)
    if dry_run:
        _print_plan(plan, as_json)
        if nested and not as_json:
            click.echo(
                "and the nested pair, base and target: 8.5 bits a weight together (9 or 13 with a free residual)"
            )
    else:
        _print_family(family, as_json)
        if draft_layers:
            click.echo(said, err=True)


def _skip_layers(
    family: Family, wanted: str, measure: bool, n_threads: int, report: StepProgress
) -> tuple[Family, str]:
    """(the family, with a draft of fewer layers if it pays or was asked for by number; what came out)."""
    from ...bench.papers.draft_layers import search_layers
    from ...bench.runs.settings import reference_of
    from ...errors import UsageError
    from ...gguf.convert.skipped_layers import add_skipped

    draft = family.variant("q4").name
    if wanted != "auto":
        try:
            layers = tuple(int(part) for part in wanted.split(","))
        except ValueError:
            raise UsageError(f"--draft-layers is '{wanted}'; give auto, or numbers such as 3,4,17") from None
        said = f"{draft} without layers {wanted} was added unmeasured, as asked for"
    else:
        target = reference_of([name for name in family.variants if name != draft])
        found = search_layers(family, target, draft, n_threads=n_threads, say=lambda step: report(step, 0, 0))
        layers, said = found.best.dropped, found.sentence
        if not found.pays:
            return family, said
    return add_skipped(family, draft, layers, measure=measure, n_threads=n_threads, progress=report), said


def _print_plan(plan: ConvertPlan, as_json: bool) -> None:
    if as_json:
        _print_json({"name": plan.name, "n_bytes": plan.n_bytes, "recipes": [_recipe_row(r) for r in plan.recipes]})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ...units import format_bytes

    console = Console(highlight=False)
    for recipe in plan.recipes:
        table = Table(title=Text(f"{plan.name}-{recipe.variant}"), title_justify="left")
        for heading in ("tensor", "shape", "from", "to", "bytes", "reason"):
            table.add_column(heading, justify="right" if heading == "bytes" else "left", overflow="fold")
        for choice in recipe.choices:
            tensor = choice.tensor
            shape = " x ".join(str(size) for size in tensor.shape)
            cells = (tensor.name, shape, tensor.weight_type.name, choice.weight_type.name, f"{choice.n_bytes:,}")
            table.add_row(*(Text(cell) for cell in (*cells, choice.reason)))
        console.print(table)
        console.print(
            f"{recipe.variant}: {format_bytes(recipe.n_tensor_bytes)}, {recipe.bits_per_weight:.2f} bits per weight, "
            + ", ".join(f"{count} {name}" for name, count in recipe.weight_type_counts.items())
        )
        if sentence := recipe.describe_fallback():
            console.print(sentence, markup=False)
    console.print(f"all siblings together: {format_bytes(plan.n_bytes)}; nothing was written")


def _recipe_row(recipe: Any) -> dict[str, Any]:
    return {
        "variant": recipe.variant,
        "n_bytes": recipe.n_tensor_bytes,
        "bits_per_weight": round(recipe.bits_per_weight, 4),
        "weight_types": recipe.weight_type_counts,
        "fallback": recipe.describe_fallback(),
        "tensors": [
            {
                "name": choice.tensor.name,
                "shape": list(choice.tensor.shape),
                "from": choice.tensor.weight_type.name,
                "to": choice.weight_type.name,
                "n_bytes": choice.n_bytes,
                "reason": choice.reason,
                "fell_back": choice.fell_back,
            }
            for choice in recipe.choices
        ],
    }


def _print_family(family: Family, as_json: bool) -> None:
    from ..shared.family_table import family_document, print_family

    if as_json:
        _print_json(family_document(family))
    else:
        print_family(family)


def _print_json(document: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(document))
