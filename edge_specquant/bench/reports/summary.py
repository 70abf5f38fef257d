"""Runs to figures: per contestant medians with spread, ratios pair by pair, acceptance, agreement, energy.

Takes an Outcome, gives Summaries (plain values). Ratios pair runs of the same case and repeat. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...placement.power.energy import average_watts
from ..measure.measurement import LONG_CLASS, Contestant, Run, Sample
from ..measure.runner import Outcome
from ..measure.statistics import Interval, Spread, ratio_interval, spread


@dataclass(frozen=True, slots=True)
class Agreement:
    """Replies against those of another contestant on the same cases, greedy.

    n_identical of n_cases replies are the same; shared is the mean share of the reply before the first difference.
    """

    n_identical: int
    n_cases: int
    shared: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the decode time goes, as shares of it: forwards of target and draft, sampling with the acceptance of
    drafts, and what drafting costs besides its forwards.
    """

    target: float
    drafter: float
    sampling: float
    drafting: float

    @property
    def outside(self) -> float:
        """All that is not a forward."""
        return 1 - self.target - self.drafter

    @property
    def rest(self) -> float:
        """What no other part explains: the controller, cells, text."""
        return self.outside - self.sampling - self.drafting


@dataclass(frozen=True, slots=True)
class Summary:
    """One contestant. Rates in tokens per second, energies in joules per generated token; None is unknown.

    speedup is against the same file without a draft, gain against the reference of the whole bench (F16 alone).
    The long prompt counts in its class only.
    """

    name: str
    baseline: str
    target: str
    draft: str
    tokens_per_s: Spread | None
    ttft_s: Spread | None
    speedup: Interval | None
    gain: Interval | None
    by_class: Mapping[str, ClassSummary]
    acceptance: float | None
    accepted_by_position: tuple[float, ...]
    mean_accepted_length: float | None
    same_as_baseline: Agreement | None
    same_as_reference: Agreement | None
    decode_j_per_token: float | None
    prefill_j_per_token: float | None
    decode_watts: float | None
    n_bytes_per_token: float | None
    profile: Profile | None
    n_memory_bytes: int | None
    n_runs: int
    reason: str


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """One contestant on one prompt class."""

    tokens_per_s: Spread | None
    speedup: Interval | None
    gain: Interval | None
    acceptance: float | None
    ttft_s: Spread | None
    ttft_ratio: Interval | None


def summarise(outcome: Outcome, reference: str) -> tuple[Summary, ...]:
    """A summary for each contestant that has runs, in their order."""
    by_name: dict[str, list[Run]] = {}
    for run in outcome.runs:
        by_name.setdefault(run.contestant, []).append(run)
    named = [one for one in outcome.contestants if one.name in by_name]
    return tuple(_summarise_one(one, by_name, reference) for one in named)


def _summarise_one(one: Contestant, by_name: Mapping[str, list[Run]], reference: str) -> Summary:
    everything, everything_base = by_name[one.name], by_name.get(one.baseline, [])
    runs = [run for run in everything if run.prompt_class != LONG_CLASS] or everything
    base, first = everything_base, by_name.get(reference, [])
    samples = [run.sample for run in runs]
    n_drafted, n_rounds = _total(samples, "n_drafted"), _total(samples, "n_rounds")
    n_accepted = _total(samples, "n_accepted")
    classes = dict.fromkeys(run.prompt_class for run in everything)
    return Summary(
        name=one.name,
        baseline=one.baseline,
        target=one.target,
        draft=one.draft,
        tokens_per_s=_rates(runs),
        ttft_s=spread([sample.ttft_s for sample in samples if sample.ttft_s is not None]),
        speedup=ratios(runs, base, _rate),
        gain=ratios(runs, first, _rate),
        by_class={name: _class_summary(name, everything, base, first) for name in classes},
        acceptance=n_accepted / n_drafted if n_drafted and n_accepted is not None else None,
        accepted_by_position=_by_position(samples),
        mean_accepted_length=1 + n_accepted / n_rounds if n_rounds and n_drafted and n_accepted is not None else None,
        same_as_baseline=agreement(runs, base),
        same_as_reference=agreement(runs, first),
        decode_j_per_token=_per_token(samples, "decode_j", lambda sample: max(0, sample.n_generated - 1)),
        prefill_j_per_token=_per_token(samples, "prefill_j", lambda sample: sample.n_prompt or 0),
        decode_watts=average_watts(_total(samples, "decode_j"), sum(sample.decode_s for sample in samples)),
        n_bytes_per_token=_per_token(samples, "n_bytes_moved", lambda sample: max(0, sample.n_generated - 1)),
        profile=_profile(samples),
        n_memory_bytes=one.n_memory_bytes,
        n_runs=len(runs),
        reason=next((run.sample.reason for run in reversed(runs) if run.sample.reason), ""),
    )


def ratios(runs: Sequence[Run], base: Sequence[Run], figure: Callable[[Sample], float | None]) -> Interval | None:
    """figure(run) / figure(base), paired by case and repeat; None where nothing pairs."""
    known = {(run.case, run.repeat): figure(run.sample) for run in base}
    by_case: dict[str, list[float]] = {}
    for run in runs:
        mine, theirs = figure(run.sample), known.get((run.case, run.repeat))
        if mine and theirs:
            by_case.setdefault(run.case, []).append(mine / theirs)
    return ratio_interval(list(by_case.values()))


def agreement(runs: Iterable[Run], base: Iterable[Run]) -> Agreement | None:
    """First replies of each case, compared id by id; None when ids are unknown."""
    known = {run.case: run.sample.tokens for run in base if run.sample.tokens}
    mine = {run.case: run.sample.tokens for run in reversed(tuple(runs)) if run.sample.tokens}
    cases = [case for case in mine if case in known]
    if not cases:
        return None
    shares = [_shared(mine[case], known[case]) for case in cases]
    n_same = sum(mine[case] == known[case] for case in cases)
    return Agreement(n_same, len(cases), float(np.mean(shares)))


def _shared(left: Sequence[int], right: Sequence[int]) -> float:
    n = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return n / max(len(left), len(right))


def _class_summary(name: str, runs: Sequence[Run], base: Sequence[Run], first: Sequence[Run]) -> ClassSummary:
    here, there, at_first = ([run for run in some if run.prompt_class == name] for some in (runs, base, first))
    samples = [run.sample for run in here]
    n_drafted, n_accepted = _total(samples, "n_drafted"), _total(samples, "n_accepted")
    share = n_accepted / n_drafted if n_drafted and n_accepted is not None else None
    return ClassSummary(
        tokens_per_s=_rates(here),
        speedup=ratios(here, there, _rate),
        gain=ratios(here, at_first, _rate),
        acceptance=share,
        ttft_s=spread([sample.ttft_s for sample in samples if sample.ttft_s is not None]),
        ttft_ratio=ratios(here, there, lambda sample: sample.ttft_s),
    )


def _rate(sample: Sample) -> float | None:
    return sample.tokens_per_s


def _rates(runs: Sequence[Run]) -> Spread | None:
    return spread([rate for run in runs if (rate := run.sample.tokens_per_s)])


def _total(samples: Sequence[Sample], name: str) -> float | None:
    """Sum over samples; None when one of them does not know."""
    values = [getattr(sample, name) for sample in samples]
    return None if not values or any(value is None for value in values) else sum(values)


def _per_token(samples: Sequence[Sample], name: str, n_tokens: Callable[[Sample], int]) -> float | None:
    known = [(getattr(sample, name), n_tokens(sample)) for sample in samples if getattr(sample, name) is not None]
    total = sum(n for _, n in known)
    return sum(value for value, _ in known) / total if total else None


def _by_position(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Mean over samples of the share accepted at each draft position that some sample reached."""
    longest = max((len(sample.accepted_by_position) for sample in samples), default=0)
    at = [[s.accepted_by_position[i] for s in samples if len(s.accepted_by_position) > i] for i in range(longest)]
    return tuple(float(np.mean(values)) for values in at)


def _profile(samples: Sequence[Sample]) -> Profile | None:
    """None where somebody does not know its parts."""
    decode_s = sum(sample.decode_s for sample in samples)
    parts = [_total(samples, name) for name in ("target_s", "drafter_s", "sampling_s", "draft_s")]
    target, drafter, sampling, drafting = parts
    if target is None or drafter is None or sampling is None or drafting is None or not decode_s:
        return None
    return Profile(target / decode_s, drafter / decode_s, sampling / decode_s, (drafting - drafter) / decode_s)
