"""`edge-specquant eval`: answers right or wrong, with and without speculation, and agreement between siblings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("what", type=click.Choice(["mmlu", "gsm8k", "alpaca", "agreement"]))
@click.argument("family")
@click.option("--limit", type=click.IntRange(1), help="At most so many questions.")
@click.option("--data", metavar="FILE|hub", help="JSONL, JSON or parquet; 'hub' fetches the published set.")
@click.option("--target", metavar="VARIANT", help="Sibling that answers (default: the most precise one).")
@click.option(
    "--draft", metavar="VARIANT", help="Who drafts: a sibling, lookup, a chain (default: the program's choice)."
)
@click.option("--n-draft", type=click.IntRange(1, 48), help="Draft tokens per round (default: the controller decides).")
@click.option("--max-tokens", type=click.IntRange(1), help="Most tokens of a reply.")
@click.option("--record", type=click.Path(path_type=Path), help="Append every reply to this JSONL file.")
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice.")
@click.option("--ctx", "n_ctx", type=click.IntRange(256), default=2048, show_default=True, help="Context length.")
@click.option("--gpu-layers", "n_gpu_layers", type=int, default=0, help="Layers on a GPU; -1 is all.")
@click.option("--report", type=click.Path(path_type=Path), help="Folder for report.md and CSV files.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the JSON document.")
@click.option("--json", "only_json", is_flag=True, help="Print the JSON document only.")
def command(
    what: str,
    family: str,
    limit: int | None,
    data: str | None,
    n_threads: int,
    n_ctx: int,
    n_gpu_layers: int,
    report: Path | None,
    out: Path | None,
    only_json: bool,
    **wish: Any,
) -> None:
    """Evaluate FAMILY: mmlu (choices), gsm8k (word problems), alpaca (instructions), agreement (siblings with F16).

    Every question is answered by the target alone and with speculation. A small set of each kind comes along.
    """
    from ...bench.evaluation.agreement_eval import evaluate_agreement
    from ...bench.evaluation.evaluation import EvalOptions, evaluate
    from ...bench.evaluation.questions import load_questions
    from ...bench.evaluation.tasks import TASKS
    from ...gguf.convert.convert import ensure_family
    from ...runtime import EngineOptions
    from ..shared.bench_output import progress_line, show
    from ..shared.progress import step_progress

    questions = load_questions("alpaca" if what == "agreement" else what, data, limit)
    with step_progress() as progress:
        opened = ensure_family(family, progress)
    options = EngineOptions(n_ctx=n_ctx, n_threads=n_threads, n_gpu_layers=n_gpu_layers, snapshot_bytes=0)
    with progress_line(only_json) as say:
        if what == "agreement":
            result = evaluate_agreement(opened, options, questions, say)
        else:
            result = evaluate(opened, options, TASKS[what], questions, EvalOptions(**wish), say)
    show(result, only_json=only_json, out=out, report=report)
