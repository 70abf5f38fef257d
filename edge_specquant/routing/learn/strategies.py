"""What routers cost and how well they agree, next to each other: the rivals, the oracle and the blind mix.

Takes a problem and each prompt's chosen sibling; gives rows for a table. The yardstick is the blind mix: the least time
in which a coin between siblings, blind to the prompt, reaches the same agreement. Knows no features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .fit_data import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row. seconds: mean a prompt; agreement: mean; saving: share of the blind mix's time that is saved (negative:
    worse than the coin); shares: of the prompts that went to each sibling, in the problem's order.
    """

    name: str
    seconds: float
    agreement: float
    saving: float
    shares: tuple[float, ...]


def evaluate(name: str, problem: Problem, chosen: Ints) -> Strategy:
    """chosen (n,): a column of the problem's siblings for each prompt."""
    seconds, agreement = outcome(problem, chosen)
    shares = tuple(float((chosen == column).mean()) for column in range(len(problem.siblings)))
    blind = blind_seconds(problem.seconds.mean(axis=0), problem.agreement.mean(axis=0), agreement.mean())
    return Strategy(name, float(seconds.mean()), float(agreement.mean()), 1 - float(seconds.mean()) / blind, shares)


def always(problem: Problem) -> list[Strategy]:
    """Each sibling for every prompt."""
    n = len(problem.seconds)
    return [evaluate(f"always {name}", problem, np.full(n, i)) for i, name in enumerate(problem.siblings)]


def oracle(problem: Problem, wanted: float) -> Ints:
    """The choice of one that knows every outcome: least time with mean agreement of at least `wanted`.

    Bisects the price of agreement; exact up to one prompt.
    """
    low, high = 0.0, 1e6
    for _ in range(60):
        price = (low * high) ** 0.5 if low else high / 2
        if _at_price(problem, price)[1] >= wanted:
            high = price
        else:
            low = price
        if high < 1e-9:
            break
    return _at_price(problem, high)[0]


def blind_seconds(seconds: Floats, agreement: Floats, wanted: float) -> float:
    """Least mean time of a mix of siblings with this agreement: the lower convex hull of the siblings' own points."""
    best = float(seconds[agreement.argmax()])
    for i, (time_i, agrees_i) in enumerate(zip(seconds, agreement, strict=True)):
        if agrees_i >= wanted:
            best = min(best, float(time_i))
        for time_j, agrees_j in zip(seconds[i + 1 :], agreement[i + 1 :], strict=True):
            low, high = sorted(((agrees_i, time_i), (agrees_j, time_j)))
            if low[0] < wanted <= high[0]:
                share = (wanted - low[0]) / (high[0] - low[0])
                best = min(best, float(low[1] + share * (high[1] - low[1])))
    return best


def savings(problem: Problem, chosen: Ints, sample: Ints) -> float:
    """The saving of a choice on a sample (with repetitions) of the prompts."""
    seconds, agreement = outcome(problem, chosen)
    blind = blind_seconds(
        problem.seconds[sample].mean(axis=0), problem.agreement[sample].mean(axis=0), agreement[sample].mean()
    )
    return 1 - float(seconds[sample].mean()) / blind


def outcome(problem: Problem, chosen: Ints) -> tuple[Floats, Floats]:
    """(seconds, agreement) of each prompt, (n,) each."""
    rows = np.arange(len(chosen))
    return problem.seconds[rows, chosen], problem.agreement[rows, chosen]


def _at_price(problem: Problem, price: float) -> tuple[Ints, float]:
    chosen = (problem.seconds - price * problem.agreement).argmin(axis=1)
    return chosen, float(outcome(problem, chosen)[1].mean())
