"""`edge-specquant bench`: speed, ablation, reproductions, comparison. Without a name of these: the full bench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...bench.measure.measurement import Case
    from ...bench.measure.runner import Plan
    from ...gguf.family.family import Family
    from ...runtime import EngineOptions

Command = Callable[..., Any]

_DEFAULT_VERB = "full"


class DefaultGroup(click.Group):
    """`bench FAMILY` is `bench full FAMILY`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = [_DEFAULT_VERB, *args]
        return super().resolve_command(ctx, args)


@click.group(cls=DefaultGroup)
def command() -> None:
    """Measure a family on this machine: `bench FAMILY`, or one of the commands below.

    Every bench ends with one JSON document on the last line of standard output. Nothing leaves the machine.
    """


_RUN_FLAGS = (
    click.option("--budget", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds to spend."),
    click.option("--repeats", type=click.IntRange(1), help="Fixed number of repeats instead of a budget."),
    click.option("--max-tokens", type=click.IntRange(2), help="A cap on the tokens of each reply."),
    click.option("--class", "classes", multiple=True, metavar="NAME", help="Only this prompt class (repeatable)."),
    click.option("--per-class", type=click.IntRange(1), default=3, show_default=True, help="Prompts of each class."),
    click.option(
        "--prompts", type=click.Path(path_type=Path), help="Your prompts: JSONL with prompt, class, max_tokens."
    ),
)
_PLACE_FLAGS = (
    click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice."),
    click.option("--ctx", "n_ctx", type=click.IntRange(256), default=4096, show_default=True, help="Context length."),
    click.option("--gpu-layers", "n_gpu_layers", type=int, default=0, help="Layers on a GPU; -1 is all."),
)
_OUTPUT_FLAGS = (
    click.option("--report", type=click.Path(path_type=Path), help="Folder for report.md, CSV files and plots."),
    click.option("--out", type=click.Path(path_type=Path), help="File for the JSON document, for `bench compare`."),
    click.option("--json", "only_json", is_flag=True, help="Print the JSON document only."),
)
_PEER_FLAG = click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="xllamacpp|URL",
    help="Also measure llama.cpp's server (extra [peer]) or the server at URL; `ollama:MODEL` for Ollama (repeatable).",
)


def _with(*flags: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(function: Command) -> Command:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return add


@command.command()
@click.argument("family")
@_with(*_RUN_FLAGS, *_PLACE_FLAGS, _PEER_FLAG, *_OUTPUT_FLAGS)
def full(family: str, peers: tuple[str, ...], **flags: Any) -> None:
    """Siblings, drafts, cost curves, memory.

    Every sibling alone; for the most precise one: draft lengths, lookup, the default.
    """
    from ...bench.benches.full import bench_full

    _race(bench_full, family, peers, flags)


@command.command()
@click.argument("family")
@click.option("--target", "targets", multiple=True, metavar="VARIANT", help="Only this target (repeatable).")
@click.option("--draft", "guests", multiple=True, metavar="DRAFT", help="FAMILY:SIBLING or GGUF file that drafts, too.")
@click.option("--controller", "controllers", multiple=True, default=("goodput", "speckv"), show_default=True)
@click.option("--long", "n_long", type=click.IntRange(0), default=1500, show_default=True, help="Long prompt's tokens.")
@_with(*_RUN_FLAGS, *_PLACE_FLAGS, _PEER_FLAG, *_OUTPUT_FLAGS)
def speculation(family: str, peers: tuple[str, ...], **flags: Any) -> None:
    """Speculation by prompt class, with its goals.

    Each target alone, with three draft tokens, with each controller, and peers, over five prompt classes and a long
    prompt.
    """
    from ...bench.benches.speculation import bench_speculation

    names = {name: flags.pop(name) for name in ("targets", "guests", "controllers", "n_long")}
    _race(bench_speculation, family, peers, flags, **names)


@command.command()
@click.argument("family")
@click.option(
    "--policy", default="fast", show_default=True, metavar="NAME|FILE", help="Routing policy of the routed rows."
)
@_with(*_RUN_FLAGS, *_PLACE_FLAGS, _PEER_FLAG, *_OUTPUT_FLAGS)
def ablation(family: str, peers: tuple[str, ...], policy: str, **flags: Any) -> None:
    """Each part alone, then all together.

    Speed, agreement with F16 and memory of quantization, speculation, controller, lookup, cascade, transplant, width
    padding and routing.
    """
    from ...bench.benches.ablation import bench_ablation

    _race(bench_ablation, family, peers, flags, policy=policy)


@command.command()
@click.argument("family")
@click.option("--limit", type=click.IntRange(1), default=12, show_default=True, help="Questions of each benchmark.")
@click.option("--budget", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds to spend.")
@_with(*_PLACE_FLAGS, *_OUTPUT_FLAGS)
def specquant(family: str, limit: int, budget: float, **flags: Any) -> None:
    """SpecQuant's tables, measured here.

    Tables I and II of arXiv 2609.21704 and the share of tiers, the paper's figures beside.
    """
    from ...bench.papers.specquant import bench_specquant

    opened, say, output = _open(family, flags)
    _show(bench_specquant(opened, _options(output), say, limit=limit, budget_s=budget), output)


@command.command()
@click.argument("family")
@_with(*_RUN_FLAGS, *_PLACE_FLAGS, *_OUTPUT_FLAGS)
def speckv(family: str, **flags: Any) -> None:
    """SpecKV's policy table, measured here.

    The table of arXiv 2605.02888 with confidence intervals, in tokens a step and in tokens per second.
    """
    from ...bench.papers.speckv import bench_speckv

    cases, plan, options = _take(flags)
    opened, say, output = _open(family, flags)
    _show(bench_speckv(opened, options, cases, plan, say), output)


@command.command()
@click.argument("family")
@click.option(
    "--contexts",
    default="1024,4096",
    show_default=True,
    metavar="N,N",
    help="Context lengths at which draft KV caches of 16, 8 and 4 bits are compared, up to 16384 (outside the budget); "
    "0 is none.",
)
@_with(*_RUN_FLAGS, *_PLACE_FLAGS, *_OUTPUT_FLAGS)
def bitnest(family: str, contexts: str, **flags: Any) -> None:
    """BitNest's tables, measured here.

    Speed-up over F16, acceptance by workload and memory by context, the paper's figures beside.
    """
    from ...bench.papers.bitnest import bench_bitnest

    cases, plan, options = _take(flags)
    opened, say, output = _open(family, flags)
    lengths = _context_lengths(contexts)
    _show(bench_bitnest(opened, options, cases, plan, say, contexts=lengths), output)


@command.command()
@click.argument("family")
@click.option("--target", "targets", multiple=True, metavar="VARIANT", help="Only this sibling (repeatable).")
@click.option("--clients", "levels", default="1,2,4,8", show_default=True, help="Numbers of clients.")
@click.option("--requests", "n_requests", type=click.IntRange(1), default=16, show_default=True, help="At each number.")
@click.option("--rounds", "repeats", type=click.IntRange(1), default=3, show_default=True)
@click.option("--max-tokens", type=click.IntRange(2), default=64, show_default=True, help="Tokens of each reply.")
@click.option("--peer/--no-peer", "with_llama", default=True, help="llama.cpp's server beside ours (extra [peer]).")
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice.")
@click.option("--ctx", "n_ctx", type=click.IntRange(256), default=1024, show_default=True, help="Of each reply.")
@click.option("--gpu-layers", "n_gpu_layers", type=int, default=0, help="Layers on a GPU; -1 is all.")
@_with(*_OUTPUT_FLAGS)
def server(family: str, targets: tuple[str, ...], levels: str, with_llama: bool, **flags: Any) -> None:
    """Throughput and latency with several clients.

    `edge-specquant serve` and llama.cpp's own server, on the same files, in turns: tokens per second of all clients
    together, percentiles of whole replies and of first tokens.
    """
    from ...bench.benches.serving import LoadPlan, bench_server
    from ...bench.measure.cases import load_cases

    plan = LoadPlan(_whole_numbers(levels), flags.pop("n_requests"), flags.pop("repeats"))
    cases = load_cases(max_tokens=flags.pop("max_tokens"))
    options = _options(flags)
    opened, say, output = _open(family, flags)
    _show(bench_server(opened, options, cases, plan, say, targets=targets, with_llama=with_llama), output)


@command.command()
@click.argument("family")
@click.option("--repeats", type=click.IntRange(1), default=7, show_default=True, help="Starts.")
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice.")
@_with(*_OUTPUT_FLAGS)
def startup(family: str, repeats: int, n_threads: int, **flags: Any) -> None:
    """How long the chat takes to start.

    From the command to the first screen, to a typed letter on it, to models in memory; and from Ctrl-Q to the shell.
    The real command, in a pseudo-terminal (Linux, macOS); no message is sent and nothing is kept.
    """
    from ...bench.benches.startup import bench_startup

    opened, say, output = _open(family, flags)
    _show(bench_startup(opened, say, repeats=repeats, n_threads=n_threads), output)


@command.command()
@click.argument("family")
@click.option("--target", "targets", multiple=True, metavar="VARIANT", help="Only this target (repeatable).")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Replies of each kind.")
@click.option("--max-tokens", type=click.IntRange(2), default=160, show_default=True, help="Tokens of each reply.")
@_with(*_PLACE_FLAGS, *_OUTPUT_FLAGS)
def structured(family: str, targets: tuple[str, ...], repeats: int, max_tokens: int, **flags: Any) -> None:
    """Replies bound to a form: what it costs, what it gives.

    Three record schemas, a tool call and text with a tail, with and without drafts of what the form forces.
    """
    from ...bench.benches.structured import bench_structured

    options = _options(flags)
    opened, say, output = _open(family, flags)
    result = bench_structured(opened, options, say, targets=targets, repeats=repeats, max_tokens=max_tokens)
    _show(result, output)


@command.command()
@click.option("--kind", default="delta", show_default=True, metavar="delta|short-conv|mamba2", help="Kind of memory.")
@click.option("--layers", "n_layer", type=click.IntRange(2, 64), default=24, show_default=True, help="Layers.")
@click.option("--width", "n_embd", type=click.IntRange(64, 8192), default=1024, show_default=True, help="Features.")
@click.option("--n-draft", type=click.IntRange(1, 16), default=3, show_default=True, help="Draft tokens a round.")
@click.option("--acceptance", type=click.FloatRange(0, 1), default=0.7, show_default=True, help="Of each draft token.")
@click.option("--rounds", "n_rounds", type=click.IntRange(1), default=24, show_default=True, help="Rounds of a turn.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Turns of each way.")
@click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice.")
@_with(*_OUTPUT_FLAGS)
def states(kind: str, n_layer: int, n_embd: int, **flags: Any) -> None:
    """What taking tokens back costs a recurrent model.

    A random model with recurrent states: rejected tokens rolled back by the engine, taken back by a saved state, or
    nothing drafted at all; in turns, ms a round.
    """
    from ...bench.benches.state_cost import bench_states
    from ...native.selftest.tiny_kinds import Sizes
    from ..shared.bench_output import progress_line

    head = max(32, n_embd // 16)
    sizes = Sizes(n_embd, n_layer, 7 * n_embd // 2, n_embd // head, max(1, n_embd // head // 4), head, 4)
    output = {name: flags.pop(name) for name in ("report", "out", "only_json")}
    line = click.get_current_context().with_resource(progress_line(output["only_json"]))
    _show(bench_states(line, kind=kind, sizes=sizes, **flags), output | {"progress": line})


@command.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@_with(*_OUTPUT_FLAGS)
def compare(before: Path, after: Path, **flags: Any) -> None:
    """What changed between two benches.

    BEFORE and AFTER are what --out wrote, or whole outputs; with significance.
    """
    from ...bench.reports.compare import compare as compare_documents
    from ...bench.reports.document import read_document

    _show(compare_documents(read_document(before), read_document(after)), flags)


@command.command()
@click.argument("document", type=click.Path(path_type=Path))
@click.option("--file", "readme", type=click.Path(path_type=Path), default=Path("README.md"), show_default=True)
def readme(document: Path, readme: Path) -> None:
    """Renew the table in README.md.

    DOCUMENT is what --out of a bench wrote; its table goes between the marks of that bench.
    """
    from ...bench.reports.document import read_document
    from ...bench.reports.readme_table import refresh_readme

    changed = refresh_readme(readme, read_document(document))
    click.echo(f"{readme} is {'changed' if changed else 'as it was'}", err=True)


def _whole_numbers(text: str) -> tuple[int, ...]:
    """ "1,2,4" as numbers. Raises UsageError."""
    from ...errors import UsageError

    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise UsageError(f"--clients is '{text}'; give whole numbers above 0, as in 1,2,4")
    return tuple(int(part) for part in parts)


def _context_lengths(text: str) -> tuple[int, ...]:
    """'1024,4096' -> (1024, 4096); '0' is none. Raises UsageError."""
    from ...errors import UsageError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if parts == ["0"]:
        return ()
    if not parts or not all(part.isdecimal() and 256 <= int(part) <= 16384 for part in parts):
        raise UsageError(f"--contexts is '{text}'; give lengths between 256 and 16384 such as 1024,4096, or 0")
    return tuple(sorted({int(part) for part in parts}))


def _race(bench: Command, family: str, peers: tuple[str, ...], flags: dict[str, Any], **extra: Any) -> None:
    """The common frame of the benches that run cases."""
    from ...bench.peers.peers import open_peers

    cases, plan, options = _take(flags)
    opened, say, output = _open(family, flags)
    targets = extra.get("targets", ())
    with open_peers(peers, opened, options, targets=targets, say=say) as contestants:
        result = bench(opened, options, cases, plan, say, peers=contestants, **extra)
    _show(result, output)


def _take(flags: dict[str, Any]) -> tuple[list[Case], Plan, EngineOptions]:
    """Removes the flags of runs and place, and builds what they say. Raises UsageError, FileError."""
    from ...bench.measure.cases import load_cases
    from ...bench.measure.runner import Plan

    cases = load_cases(
        flags.pop("prompts"),
        classes=flags.pop("classes"),
        max_tokens=flags.pop("max_tokens"),
        per_class=flags.pop("per_class"),
    )
    return cases, Plan(budget_s=flags.pop("budget"), repeats=flags.pop("repeats")), _options(flags)


def _options(flags: dict[str, Any]) -> EngineOptions:
    """Removes the flags of place."""
    from ...runtime import EngineOptions

    names = ("n_threads", "n_ctx", "n_gpu_layers")
    return EngineOptions(**{name: flags.pop(name) for name in names}, snapshot_bytes=0)


def _open(family: str, flags: dict[str, Any]) -> tuple[Family, Callable[[str], None], dict[str, Any]]:
    """(the family, progress, the output flags that are left)."""
    from ...gguf.convert.convert import ensure_family
    from ..shared.bench_output import progress_line
    from ..shared.progress import step_progress

    with step_progress() as progress:
        opened = ensure_family(family, progress)
    line = click.get_current_context().with_resource(progress_line(flags["only_json"]))
    return opened, line, flags | {"progress": line}


def _show(result: Any, flags: dict[str, Any]) -> None:
    from ..shared.bench_output import show

    show(result, **flags)
