"""What each policy for the draft length would have done on recorded rounds: tokens, seconds, draft lengths. Pure.

Offline, as in the SpecKV paper: a policy drafts a beginning of the draft that was recorded, and its choice never moves
the text. Controllers run as they are, told the costs of a curve; one that drafts little needs more rounds for a reply,
so it meets the recorded ones again until it has written as many tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.control.costs import Costs
from ...engine.control.draft_length import Controller
from ...engine.control.speckv.speckv import GAMMAS, Predictor, summarise
from ...engine.control.traces import TraceRound
from ...engine.signals import Offer
from ...engine.stats import RoundRecord
from ...errors import UsageError
from ...placement.cost.cost_curve import CostCurve

LENGTHS = (0, *GAMMAS)
LONGEST = GAMMAS[-1]
_FEWEST_ROUNDS = 5  # of one width, for a median worth having
_DINKELBACH_STEPS = 12


class Pair(NamedTuple):
    """Who drafted for whom."""

    family: str
    target: str
    draft: str


@dataclass(frozen=True, slots=True)
class PairCosts:
    """Seconds of the target's forwards by width, and of one draft token."""

    target: CostCurve
    draft_s: float

    def round_s(self, n_draft: int) -> float:
        """Seconds of a round with n draft tokens, its batch padded to the cheapest width."""
        return n_draft * self.draft_s + self.target.decode_s(self.target.cheapest_width(1 + n_draft))

    def costs(self, draft: str) -> Costs:
        """As a controller sees them."""
        return Costs(self.target, {draft: CostCurve((1,), (0,), ((self.draft_s,),))})


NOMINAL = PairCosts(CostCurve((1, 9), (0,), ((0.05, 0.1),)), 0.02)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy on the rounds of one reply: draft lengths, tokens gained, seconds (NaN without costs)."""

    n_draft: NDArray[np.int64]
    tokens: NDArray[np.int64]
    seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reply:
    """The full-length rounds of one reply, with the costs of its pair if they are known."""

    pair: Pair
    task: str
    rounds: tuple[TraceRound, ...]
    costs: PairCosts | None

    def outcome(self, n_draft: Sequence[int] | NDArray[np.int64]) -> Outcome:
        """The given draft length in each round; beyond the last one the rounds begin anew."""
        lengths = np.asarray(n_draft, dtype=np.int64)
        accepted = np.resize(np.array([each.n_accepted for each in self.rounds], dtype=np.int64), len(lengths))
        seconds = [self.costs.round_s(int(n)) if self.costs else np.nan for n in lengths]
        return Outcome(lengths, 1 + np.minimum(accepted, lengths), np.array(seconds))


def pair_of(each: TraceRound) -> Pair:
    """The pair of a round."""
    return Pair(each.family, each.target, each.draft)


def full_rounds(reply: Sequence[TraceRound]) -> tuple[TraceRound, ...]:
    """Rounds that tell what every gamma would have done."""
    return tuple(each for each in reply if each.is_measured and each.n_drafted >= LONGEST and each.size_ratio)


def measured_costs(rounds: Sequence[TraceRound]) -> dict[Pair, PairCosts]:
    """Medians of the recorded rounds by width, for pairs of which plain rounds and another width were recorded."""
    verify: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    draft: dict[Pair, list[float]] = defaultdict(list)
    for each in rounds:
        verify[each.family, each.target][each.width].append(each.verify_s)
        if each.is_measured:
            draft[pair_of(each)].append(each.draft_s / each.n_drafted)
    found = {}
    for pair, steps in draft.items():
        points = {w: median(s) for w, s in sorted(verify[pair[:2]].items()) if len(s) >= _FEWEST_ROUNDS}
        if 1 in points and len(points) > 1:
            found[pair] = PairCosts(CostCurve(tuple(points), (0,), (tuple(points.values()),)), median(steps))
    return found


def parse_costs(verify_ms: str, draft_ms: float) -> PairCosts:
    """'1:25,3:60,5:65,9:92' (width:milliseconds) and milliseconds of a draft token. Raises UsageError."""
    try:
        points = sorted((int(width), float(ms) / 1e3) for width, ms in (p.split(":") for p in verify_ms.split(",")))
    except ValueError:
        raise UsageError(f"'{verify_ms}' is not WIDTH:MS,... such as 1:25,3:60,5:65,9:92") from None
    widths = tuple(width for width, _ in points)
    if widths[0] != 1 or len(set(widths)) < max(2, len(widths)) or min(s for _, s in points) <= 0 or draft_ms <= 0:
        raise UsageError(f"'{verify_ms}' must have different widths from 1 on, and milliseconds above 0")
    return PairCosts(CostCurve(widths, (0,), (tuple(seconds for _, seconds in points),)), draft_ms / 1e3)


# -- policies --------------------------------------------------------------------------------------------------------


def controlled(reply: Reply, make: Callable[[Costs], Controller]) -> Outcome:
    """A controller until it has written what the reply holds; where costs are unknown it sees nominal ones."""
    costs = reply.costs or NOMINAL
    controller = make(costs.costs(reply.pair.draft))
    lengths: list[int] = []
    left = sum(1 + min(each.n_accepted, LONGEST) for each in reply.rounds)
    for each in cycle(reply.rounds):
        if left <= 0:
            break
        lengths.append(one_round(controller, each, costs))
        left -= 1 + min(each.n_accepted, lengths[-1])
    return reply.outcome(lengths)


def one_round(controller: Controller, each: TraceRound, costs: PairCosts) -> int:
    """Lets a controller go through one recorded round; how many tokens it drafted."""
    limit = min(controller.limit(), each.n_drafted)
    choice = controller.choose([Offer(each.draft, each.n_drafted, n_behind=1)], limit) if limit > 0 else None
    n = 0
    for signals in each.signals[: min(limit, choice.n)] if choice else ():
        n += 1
        if not controller.should_continue(signals):
            break
    width = costs.target.cheapest_width(1 + n)
    controller.observe(
        RoundRecord(
            n_drafted=n,
            n_accepted=min(n, each.n_accepted),
            draft_s=n * costs.draft_s,
            verify_s=costs.target.decode_s(width),
            width=width,
            n_past=each.n_past,
            source=each.draft if n else "none",
            signals=each.signals[:n],
        )
    )
    return n


def same_round(reply: Reply, predictor: Predictor) -> Outcome:
    """SpecKV as the paper evaluates it: by the signals of the very draft whose length is being chosen."""
    lengths = []
    for each in reply.rounds:
        summary = summarise(each.signals)
        assert summary is not None and each.size_ratio is not None
        expected = predictor.acceptance(summary, each.size_ratio) * np.array(GAMMAS)
        lengths.append(GAMMAS[int(expected.argmax())])
    return reply.outcome(lengths)


def best_fixed(
    replies: Sequence[Reply], key: Callable[[Reply], object], lengths: Sequence[int], *, by_time: bool
) -> list[Outcome]:
    """For each group of replies the one length that is best for it in hindsight."""
    groups: dict[object, list[Reply]] = defaultdict(list)
    for reply in replies:
        groups[key(reply)].append(reply)
    best = {name: max(lengths, key=lambda n: _score(group, n, by_time)) for name, group in groups.items()}
    return [reply.outcome([best[key(reply)]] * len(reply.rounds)) for reply in replies]


def oracle(replies: Sequence[Reply], *, by_time: bool) -> list[Outcome]:
    """The best length of every round in hindsight: most tokens (the shortest that has them), or most tokens per second
    overall, plain rounds included."""
    lengths = LENGTHS if by_time else GAMMAS
    tables = [[reply.outcome([n] * len(reply.rounds)) for n in lengths] for reply in replies]
    price = 0.0  # tokens a second must earn; Dinkelbach 1967 finds the best ratio of sums
    made: list[Outcome] = []
    for _ in range(_DINKELBACH_STEPS if by_time else 1):
        picks = [np.argmax([_worth(each, price) for each in table], axis=0) for table in tables]
        made = [reply.outcome(np.array(lengths)[pick]) for reply, pick in zip(replies, picks, strict=True)]
        if by_time:
            price = sum(int(o.tokens.sum()) for o in made) / sum(float(o.seconds.sum()) for o in made)
    return made


def _worth(outcome: Outcome, price: float) -> NDArray[np.float64]:
    """Tokens of each round less what its seconds must earn."""
    return outcome.tokens - price * outcome.seconds if price else outcome.tokens.astype(np.float64)


def _score(group: Sequence[Reply], n: int, by_time: bool) -> float:
    made = [reply.outcome([n] * len(reply.rounds)) for reply in group]
    tokens = sum(int(o.tokens.sum()) for o in made)
    return tokens / (sum(float(o.seconds.sum()) for o in made) if by_time else sum(len(o.tokens) for o in made))
