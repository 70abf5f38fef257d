"""`bench speckv FAMILY`: SpecKV's policy table (arXiv 2605.02888) on this machine, with confidence intervals.

Tokens a step is the published measure; it favours long drafts, since drafting costs nothing in it.
Tokens per second, by cost curves measured here, is what a user feels: both are shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...engine.caches.kv_cache import KVCache
from ...engine.prompts.template import ChatTemplate
from ...errors import UsageError
from ...gguf.family.family import Family
from ...native.protocol import ContextParams, Model
from ...placement.cost.cost_curve import CostCurve
from ...placement.cost.sibling import siblings_of
from ...placement.machine.this_machine import probe_here
from ...runtime import EngineOptions
from ..benches.full import curve_table, floors_s
from ..measure.ceiling import measure_bandwidth
from ..measure.environment import environment_line, record_environment
from ..measure.measurement import Case
from ..measure.runner import Plan
from ..measure.statistics import mean_interval, paired_mean_difference
from ..measure.width_costs import WidthCost, measure_curves
from ..reports.document import make_document
from ..reports.result import Pictures, Result, Say
from ..reports.tables import Table
from ..runs.settings import by_precision, drafter_for
from ..runs.workplace import open_sibling
from .draft_profile import Profile, greedy_reply, profile_steps
from .speckv_policies import (
    GAMMAS,
    Replay,
    best_fixed,
    cross_validated,
    fixed,
    oracle,
    predicted_tokens,
    replay,
    replay_goodput,
    round_s,
    speckv_policy,
)
from .speckv_tables import DEFAULT, DIFFERENCES, PAPER, PolicyRow, policy_table, verdict

DEFAULT_N_CTX = 1024
MAX_TOKENS = 64  # of each reply: every position costs eight draft forwards
WIDTHS = tuple(range(1, 10))


def bench_speckv(family: Family, options: EngineOptions, cases: Sequence[Case], plan: Plan, say: Say) -> Result:
    """Profiles the targets that have a smaller sibling, then replays every policy. Raises EngineError, UsageError."""
    targets = [name for name in by_precision(family.variants) if drafter_for(name, family.variants)]
    environment = record_environment(probe_here(), family, options.n_threads)
    say("measuring the memory's bandwidth")
    bandwidth = None if options.n_gpu_layers else measure_bandwidth(environment["n_threads"])
    floors = floors_s({sibling.name: sibling for sibling in siblings_of(family)}, bandwidth)
    with _opened(family, options) as (models, caches):
        say("measuring forwards by width")
        curves = measure_curves(caches, widths=WIDTHS)
        profiles = _profiles(family, models, caches, targets, cases, plan, say)
    if not profiles:
        raise UsageError(f"none of {len(cases)} prompts gave a reply to profile; raise --ctx, or take other prompts")
    costs = {name: _curve(curve) for name, curve in curves.items()}
    say("training and replaying")
    rows, decide_s = policy_rows(profiles, costs)
    notes = (
        environment_line(environment),
        f"{len(profiles)} replies, {sum(len(one.steps) for one in profiles)} steps; 95 % bootstrap over replies",
        f"SpecKV decides in {1e3 * decide_s:.2f} ms here (the paper: 0.34 ms)",
        *DIFFERENCES,
    )
    shown = (policy_table(rows, notes), _breakdown(profiles, costs), curve_table(curves, floors))
    document = make_document(
        "speckv",
        environment=environment,
        targets=targets,
        policies=rows,
        n_replies=len(profiles),
        n_steps=sum(len(one.steps) for one in profiles),
        decide_s=decide_s,
        cost_curves=curves,
        floors_s=floors,
        paper=PAPER,
        differences=DIFFERENCES,
    )
    pictures = Pictures(curves=curves, floors_s=floors)
    return Result(f"{family.name}: SpecKV's policy table", document, shown, verdict(rows), pictures)


def policy_rows(profiles: Sequence[Profile], costs: dict[str, CostCurve]) -> tuple[list[PolicyRow], float]:
    """Every policy on every profile, and the seconds of one SpecKV decision. Pure but for that clock."""
    replays = {name: [run(profile) for profile in profiles] for name, run in _policies(profiles, costs).items()}
    plain = [replay(one, fixed(0), *_pair(one, costs)).tokens_per_s for one in profiles]
    base = [one.tokens_per_step for one in replays[DEFAULT]]
    rows = []
    for name, found in replays.items():
        steps = [one.tokens_per_step for one in found]
        rates = [one.tokens_per_s for one in found]
        against = paired_mean_difference(base, steps)
        speedup = mean_interval([rate / alone for rate, alone in zip(rates, plain, strict=True)])
        rows.append(PolicyRow(name, mean_interval(steps), mean_interval(rates), speedup, against and against[1]))
    return rows, _decide_s(profiles)


def _policies(profiles: Sequence[Profile], costs: dict[str, CostCurve]) -> dict[str, Callable[[Profile], Replay]]:
    networks = cross_validated(profiles)

    def by_gamma(n: int) -> Callable[[Profile], Replay]:
        return lambda one: replay(one, fixed(n), *_pair(one, costs))

    def steps_of(one: Profile, n: int) -> float:
        return by_gamma(n)(one).tokens_per_step

    best = best_fixed(profiles, steps_of)
    best_rate = best_fixed(profiles, lambda one, n: by_gamma(n)(one).tokens_per_s)
    task = {c: best_fixed([p for p in profiles if p.prompt_class == c], steps_of) for c in _classes(profiles)}

    def speckv(one: Profile) -> Replay:
        return replay(one, speckv_policy(networks[one.case], predicted_tokens), *_pair(one, costs))

    def speckv_rate(one: Profile) -> Replay:
        target, draft = _pair(one, costs)
        policy = speckv_policy(networks[one.case], lambda a, n: predicted_tokens(a, n) / round_s(n, target, draft))
        return replay(one, policy, target, draft)

    return {
        **{DEFAULT if n == 4 else f"Fixed-{n}": by_gamma(n) for n in GAMMAS},
        "Fixed-best (per compression)": lambda one: by_gamma(best[one.target])(one),
        "Fixed-best by tokens per second": lambda one: by_gamma(best_rate[one.target])(one),
        "Task-oracle (requires task label)": lambda one: by_gamma(task[one.prompt_class][one.target])(one),
        "SpecKV": speckv,
        "SpecKV, tokens per second": speckv_rate,
        "goodput (this program's default)": lambda one: replay_goodput(one, *_pair(one, costs)),
        "Oracle (knows what is accepted)": lambda one: replay(one, oracle(*_pair(one, costs)), *_pair(one, costs)),
        "no draft": lambda one: replay(one, fixed(0), *_pair(one, costs)),
    }


def _breakdown(profiles: Sequence[Profile], costs: dict[str, CostCurve]) -> Table:
    """Table 2: tokens a step by compression and task, Fixed-4 and SpecKV."""
    policies = _policies(profiles, costs)
    rows = []
    for target in dict.fromkeys(one.target for one in profiles):
        for task in _classes(profiles):
            own = [one for one in profiles if one.target == target and one.prompt_class == task]
            if own:
                four, speckv = (
                    float(np.mean([policies[n](one).tokens_per_step for one in own])) for n in (DEFAULT, "SpecKV")
                )
                rows.append((target, task, f"{four:.2f}", f"{speckv:.2f}", f"{100 * (speckv / four - 1):+.1f} %"))
    return Table(
        "Table 2: by compression and task", ("Compression", "Task", "Fixed-4", "SpecKV", "Improvement"), tuple(rows)
    )


def _profiles(
    family: Family,
    models: dict[str, Model],
    caches: dict[str, KVCache],
    targets: Sequence[str],
    cases: Sequence[Case],
    plan: Plan,
    say: Say,
) -> list[Profile]:
    """Profiles case by case, until the budget is spent; at least two cases."""
    begun = plan.clock()
    found: list[Profile] = []
    for number, case in enumerate(cases):
        if number >= 2 and (plan.clock() - begun) * (1 + 1 / number) > plan.budget_s:
            break
        for target in targets:
            say(f"profiling {target}: {case.id} ({number + 1} of {len(cases)})")
            draft = drafter_for(target, family.variants) or target
            vocab = models[target].vocab
            prompt = ChatTemplate(models[target].chat_template, vocab).tokens(
                [{"role": "user", "content": case.prompt}]
            )
            room = caches[target].n_ctx - len(prompt) - WIDTHS[-1]
            if room < 2:
                say(f"{case.id} is left out: its {len(prompt)} tokens do not fit --ctx {caches[target].n_ctx}")
                continue
            reply = greedy_reply(caches[target], prompt, min(MAX_TOKENS, case.max_tokens, room), vocab.eog_tokens)
            if len(reply) < 2:
                continue
            ratio = family.variant(draft).n_bytes / family.variant(target).n_bytes
            steps = tuple(profile_steps(caches[draft], prompt, reply))
            found.append(Profile(case.id, case.prompt_class, target, draft, ratio, steps))
    return found


@contextlib.contextmanager
def _opened(family: Family, options: EngineOptions) -> Iterator[tuple[dict[str, Model], dict[str, KVCache]]]:
    n_ctx = options.n_ctx or DEFAULT_N_CTX
    with contextlib.ExitStack() as stack:
        models: dict[str, Model] = {}
        caches: dict[str, KVCache] = {}
        for name in by_precision(family.variants):
            model = open_sibling(family, name, options)
            models[name] = stack.enter_context(contextlib.closing(model))
            context = model.context(ContextParams(n_ctx=n_ctx, max_rows=16, n_threads=options.n_threads))
            caches[name] = KVCache(stack.enter_context(contextlib.closing(context)))
        yield models, caches


def _curve(curve: Sequence[WidthCost]) -> CostCurve:
    seconds = tuple(cost.seconds.median for cost in curve)
    return CostCurve(tuple(cost.width for cost in curve), (curve[0].n_past,), (seconds,))


def _pair(profile: Profile, costs: dict[str, CostCurve]) -> tuple[CostCurve, CostCurve]:
    return costs[profile.target], costs[profile.draft]


def _classes(profiles: Sequence[Profile]) -> list[str]:
    return list(dict.fromkeys(profile.prompt_class for profile in profiles))


def _decide_s(profiles: Sequence[Profile], n: int = 50) -> float:
    """Median seconds of one decision."""
    policy = speckv_policy(next(iter(cross_validated(profiles).values())), predicted_tokens)
    profile = profiles[0]
    times = []
    for i in range(n):
        begun = time.perf_counter()
        policy(profile, profile.steps[i % len(profile.steps)])
        times.append(time.perf_counter() - begun)
    return float(np.median(times))
