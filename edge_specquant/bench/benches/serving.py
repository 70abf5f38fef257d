"""`bench server FAMILY`: tokens per second and latencies with several clients, ours beside llama.cpp's server.

Both get the same files, threads, context and token ids, in turns, in one run. Ours is `edge-specquant serve` in a
process of its own, as users have it. Knows nothing of how a server works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...gguf.family.family import Family
from ...native.selftest.selftest import verdict
from ...placement.machine.this_machine import probe_here
from ...runtime import EngineOptions
from ..measure.environment import environment_line, record_environment
from ..measure.load import LoadRun, drive, never_asked, percentiles
from ..measure.measurement import Case, Measure
from ..measure.statistics import Interval, ratio_interval, spread
from ..peers.peer_http import CompletionsPeer, LlamaServerPeer
from ..peers.peer_process import ServerSettings, llama_server, our_server
from ..peers.peers import prompt_ids
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..reports.tables import Table, number, rate, times
from ..runs.settings import by_precision, drafter_for

N_CTX_EACH = 1024
_SHARES = (50, 95)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """levels: numbers of clients. n_requests at each level and round; repeats: rounds."""

    levels: Sequence[int] = (1, 2, 4, 8)
    n_requests: int = 16
    repeats: int = 3

    @property
    def n_parallel(self) -> int:
        """Replies that every server writes at once."""
        return max(self.levels)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A server with one way to be asked. peer: who it is compared with, by name; None for a peer."""

    name: str
    peer: str | None
    measure: Measure


Runs = Mapping[tuple[str, int], Sequence[LoadRun]]
"""By entrant and number of clients, a run for each round."""


def bench_server(
    family: Family,
    options: EngineOptions,
    cases: Sequence[Case],
    plan: LoadPlan,
    say: Say,
    *,
    targets: Sequence[str] = (),
    with_llama: bool = True,
) -> Result:
    """Measures every target at every level. Raises FamilyError, EngineMissingError, EngineError."""
    wanted = [family.variant(name).name for name in targets] or _ends(by_precision(family.variants))
    runs: dict[tuple[str, int], list[LoadRun]] = {}
    with _entrants(family, options, plan, wanted, say, with_llama=with_llama) as entrants:
        environment = record_environment(probe_here(), family, options.n_threads)
        asked = 0
        for entrant in entrants:  # the first reply loads the model
            drive(entrant.measure, never_asked(cases, 1, 10_000), 1)
        for round_ in range(plan.repeats):
            for level in plan.levels:
                for entrant in entrants if round_ % 2 == 0 else entrants[::-1]:
                    # Each its own: our entrants are one server, and would find each other's prompts in its cache.
                    questions = never_asked(cases, plan.n_requests, asked)
                    asked += plan.n_requests
                    run = drive(entrant.measure, questions, level)
                    runs.setdefault((entrant.name, level), []).append(run)
                    say(f"{entrant.name}, {level} clients: {run.tokens_per_s:.1f} tokens/s")
    table = load_table(family.name, entrants, plan.levels, runs, environment_line(environment))
    sentences = tuple(_verdict(entrants, plan.levels, runs))
    document = make_document(
        "server",
        environment=environment,
        plan=plan,
        verdict=sentences,
        runs=[
            {"entrant": name, "round": i, **_as_json(run)}
            for (name, _), each in runs.items()
            for i, run in enumerate(each)
        ],
    )
    return Result(f"{family.name}: many clients", document, (table,), sentences)


@contextlib.contextmanager
def _entrants(
    family: Family, options: EngineOptions, plan: LoadPlan, targets: Sequence[str], say: Say, *, with_llama: bool
) -> Iterator[list[Entrant]]:
    n_threads = options.n_threads or probe_here().cpu.n_threads
    n_ctx = options.n_ctx or N_CTX_EACH
    found: list[Entrant] = []
    with contextlib.ExitStack() as stack:
        say("starting our server")
        ours = stack.enter_context(
            our_server(
                str(family.folder),
                n_ctx=n_ctx,
                n_parallel=plan.n_parallel,
                n_threads=n_threads,
                n_gpu_layers=options.n_gpu_layers,
            )
        )
        for target in targets:
            ids = stack.enter_context(prompt_ids(family, target))
            peer_name = None
            if with_llama:
                peer_name = f"llama.cpp server, {target}"
                say(f"starting {peer_name}")
                settings = ServerSettings(
                    model=family.path(target),
                    n_ctx=n_ctx,
                    n_parallel=plan.n_parallel,
                    n_threads=n_threads,
                    n_gpu_layers=options.n_gpu_layers or 0,
                    use_extra_bufts=verdict().use_extra_bufts,
                )
                server = stack.enter_context(llama_server(settings))
                found.append(Entrant(peer_name, None, LlamaServerPeer(server.url, ids).measure))
            model = f"{family.name}:{target}"
            drafter = drafter_for(target, family.variants)
            drafts = {"no draft": "none", **({f"draft lookup+{drafter}": f"lookup+{drafter}"} if drafter else {})}
            for name, draft in drafts.items():
                peer = CompletionsPeer(ours.url, model, ids, {"draft": draft})
                found.append(Entrant(f"ours, {target}, {name}", peer_name, peer.measure))
        yield found


def load_table(name: str, entrants: Sequence[Entrant], levels: Sequence[int], runs: Runs, where: str) -> Table:
    """Rates, their ratio to the peer's in the same round, and percentiles over the replies of all rounds."""
    rows = []
    for level in levels:
        for entrant in entrants:
            own = runs[entrant.name, level]
            replies = [served for run in own for served in run.replies]
            latency = percentiles([served.latency_s for served in replies], _SHARES)
            first = [served.sample.ttft_s for served in replies if served.sample.ttft_s is not None]
            ttft = percentiles(first, _SHARES) if first else [None, None]
            rows.append(
                (
                    str(level),
                    entrant.name,
                    rate(spread([run.tokens_per_s for run in own])),
                    times(_against_peer(entrant, level, runs)),
                    *(number(value) for value in (*latency, *ttft)),
                )
            )
    columns = (
        "clients",
        "server",
        "tokens/s",
        "against llama.cpp",
        "reply p50, s",
        "p95, s",
        "first token p50, s",
        "p95, s",
    )
    return Table(f"{name}: many clients", columns, tuple(rows), (where,))


def _against_peer(entrant: Entrant, level: int, runs: Runs) -> Interval | None:
    if entrant.peer is None:
        return None
    pairs = zip(runs[entrant.name, level], runs[entrant.peer, level], strict=True)
    return ratio_interval([[ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in pairs]])


def _verdict(entrants: Sequence[Entrant], levels: Sequence[int], runs: Runs) -> Iterator[str]:
    for entrant in entrants:
        ratios = {level: ratio for level in levels if (ratio := _against_peer(entrant, level, runs)) is not None}
        if ratios:
            found = ", ".join(f"{ratio.value:.2f}x with {level}" for level, ratio in ratios.items())
            yield f"{entrant.name}: {found} clients, of llama.cpp's server"


def _as_json(run: LoadRun) -> dict[str, object]:
    return {
        "n_clients": run.n_clients,
        "wall_s": run.wall_s,
        "tokens_per_s": run.tokens_per_s,
        "latency_s": [served.latency_s for served in run.replies],
        "ttft_s": [served.sample.ttft_s for served in run.replies],
        "n_generated": [served.sample.n_generated for served in run.replies],
    }


def _ends(names: Sequence[str]) -> list[str]:
    """The most and the least precise sibling."""
    return list(dict.fromkeys((names[0], names[-1])))
