"""Policies of draft length, replayed on profiles: fixed, best in hindsight, oracle, SpecKV's network, goodput. Pure.

A policy sees what a drafter would see and says how many tokens it drafts; the replay knows what is accepted and what it
costs. SpecKV here decides after the first two draft tokens, whose signals are its features: what is drafted anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engine.control.costs import Costs
from ...engine.control.goodput import Goodput
from ...engine.control.speckv.mlp import Mlp, fit
from ...engine.signals import Offer
from ...engine.stats import RoundRecord
from ...placement.cost.cost_curve import CostCurve
from .draft_profile import LONGEST, Profile, Step

GAMMAS = (2, 4, 6, 8)
_N_SEEN = 2  # draft tokens whose signals decide
_VALIDATION_EVERY = 5

Policy = Callable[[Profile, Step], int]
"""How many tokens to draft at this step."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy did on one reply."""

    n_steps: int
    n_tokens: int
    n_drafted: int
    n_accepted: int
    seconds: float

    @property
    def tokens_per_step(self) -> float:
        """Accepted tokens and the target's own."""
        return self.n_tokens / self.n_steps

    @property
    def tokens_per_s(self) -> float:
        """By the measured curves."""
        return self.n_tokens / self.seconds


def replay(profile: Profile, policy: Policy, target: CostCurve, draft: CostCurve) -> Replay:
    """Walks the reply step by step. 0 drafted tokens is plain decoding."""
    at = n_steps = n_drafted = n_accepted = 0
    seconds = 0.0
    while at < len(profile.steps):
        step = profile.steps[at]
        n = policy(profile, step)
        kept = min(n, step.n_match)
        seconds += round_s(n, target, draft)
        n_steps, n_drafted, n_accepted, at = n_steps + 1, n_drafted + n, n_accepted + kept, at + kept + 1
    return Replay(n_steps, at, n_drafted, n_accepted, seconds)


def replay_goodput(profile: Profile, target: CostCurve, draft: CostCurve) -> Replay:
    """The program's own default controller on the same steps and costs."""
    controller = Goodput(Costs(target, {profile.draft: draft}), LONGEST)
    offers = [Offer(profile.draft, LONGEST)]
    at = n_steps = n_drafted = n_accepted = 0
    seconds = 0.0
    while at < len(profile.steps):
        step = profile.steps[at]
        signals = step.signals(profile.draft)
        choice = controller.choose(offers, min(LONGEST, controller.limit()))
        n = 0
        while choice is not None and n < choice.n:
            n += 1
            if not controller.should_continue(signals[n - 1]):
                break
        kept = min(n, step.n_match)
        draft_s, width = n * draft.decode_s(1), target.cheapest_width(1 + n)
        verify_s = target.decode_s(width)
        source = profile.draft if n else "none"
        controller.observe(RoundRecord(n, kept, draft_s, verify_s, width, at, source, signals[:n]))
        seconds += draft_s + verify_s
        n_steps, n_drafted, n_accepted, at = n_steps + 1, n_drafted + n, n_accepted + kept, at + kept + 1
    return Replay(n_steps, at, n_drafted, n_accepted, seconds)


def round_s(n: int, target: CostCurve, draft: CostCurve) -> float:
    """Seconds of n draft forwards and one verification, padded where that is cheaper."""
    return n * draft.decode_s(1) + target.decode_s(target.cheapest_width(1 + n))


def fixed(n: int) -> Policy:
    """Always n."""
    return lambda _profile, _step: n


def oracle(target: CostCurve, draft: CostCurve) -> Policy:
    """Knows how many tokens match: the length, 0 included, with the most tokens per second."""

    def choose(profile: Profile, step: Step) -> int:
        del profile
        rates = [(min(n, step.n_match) + 1) / round_s(n, target, draft) for n in range(LONGEST + 1)]
        return int(np.argmax(rates))

    return choose


def speckv_policy(mlp: Mlp, gain: Callable[[float, int], float]) -> Policy:
    """argmax over gammas of gain(predicted acceptance, gamma)."""

    def choose(profile: Profile, step: Step) -> int:
        rows = np.array([features(profile, step, gamma) for gamma in GAMMAS])
        predicted = np.clip(mlp.predict(rows), 0.0, 1.0)
        gains = [gain(float(share), gamma) for gamma, share in zip(GAMMAS, predicted, strict=True)]
        return GAMMAS[int(np.argmax(gains))]

    return choose


def predicted_tokens(acceptance: float, gamma: int) -> float:
    """The published objective: a(γ)·γ + 1."""
    return acceptance * gamma + 1


def features(profile: Profile, step: Step, gamma: int) -> list[float]:
    """Mean and greatest entropy, mean and least confidence, compression level, gamma: the published six."""
    entropy, confidence = step.entropy[:_N_SEEN], step.confidence[:_N_SEEN]
    return [
        float(np.mean(entropy)),
        max(entropy),
        float(np.mean(confidence)),
        min(confidence),
        profile.size_ratio,
        float(gamma),
    ]


def train(profiles: Sequence[Profile]) -> Mlp:
    """SpecKV's network: 16 hidden units, from features to the accepted share of gamma draft tokens."""
    rows, shares = [], []
    for profile in profiles:
        for step in profile.steps:
            for gamma in GAMMAS:
                rows.append(features(profile, step, gamma))
                shares.append(min(gamma, step.n_match) / gamma)
    validation = np.arange(len(rows)) // len(GAMMAS) % _VALIDATION_EVERY == 0
    inputs: NDArray[np.float64] = np.array(rows)
    return fit(inputs, np.array(shares), validation).mlp


def cross_validated(profiles: Sequence[Profile]) -> dict[str, Mlp]:
    """A network for each case, trained without it."""
    cases = dict.fromkeys(profile.case for profile in profiles)
    return {case: train([profile for profile in profiles if profile.case != case]) for case in cases}


def best_fixed(profiles: Sequence[Profile], value: Callable[[Profile, int], float]) -> Mapping[str, int]:
    """The fixed gamma with the highest mean value for each target, in hindsight."""
    best: dict[str, int] = {}
    for target in dict.fromkeys(profile.target for profile in profiles):
        own = [profile for profile in profiles if profile.target == target]
        best[target] = max(GAMMAS, key=lambda n: float(np.mean([value(profile, n) for profile in own])))
    return best
