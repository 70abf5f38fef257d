"""From traces to the network of `speckv.py`: how sure the previous draft was, how much of the next one was accepted.

A draft of 8 tokens tells what every shorter one would have done, so each round gives a row for each gamma; the
previous draft is seen at each length it might have had, since at run time it is as long as the last choice. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ....errors import UsageError
from ..traces import TraceRound
from .mlp import Fit, Values, fit
from .speckv import FEATURES, GAMMAS, HIDDEN, Predictor, summarise

VALIDATION_SHARE = 0.15
_FEWEST_REPLIES = 4


@dataclass(frozen=True, slots=True)
class Rows:
    """inputs [n, 6], accepted / gamma [n], and the number of the reply each row comes from [n]."""

    inputs: Values
    outputs: Values
    reply: NDArray[np.int64]


def rows_of(rounds: Sequence[TraceRound], *, same_round: bool = False) -> Rows:
    """Rows for training. same_round: signals of the very draft that is judged, as the paper evaluates it; a controller
    cannot have them before it drafts."""
    made = [row for number, reply in enumerate(by_reply(rounds)) for row in _reply_rows(reply, number, same_round)]
    table = np.array(made, dtype=np.float64).reshape(-1, len(FEATURES) + 2)
    return Rows(table[:, : len(FEATURES)], table[:, len(FEATURES)], table[:, -1].astype(np.int64))


def by_reply(rounds: Sequence[TraceRound]) -> list[list[TraceRound]]:
    """Rounds of each reply, in the order of the first one."""
    found: dict[str, list[TraceRound]] = {}
    for each in rounds:
        found.setdefault(each.reply, []).append(each)
    return list(found.values())


def train(rounds: Sequence[TraceRound], objective: str, *, seed: int = 0) -> tuple[Predictor, Fit]:
    """A network from traces; whole replies are held out for early stopping. Raises UsageError for too few of them."""
    rows = rows_of(rounds)
    replies = np.unique(rows.reply)
    if len(replies) < _FEWEST_REPLIES:
        raise UsageError(
            f"only {len(replies)} replies have two full drafts in a row by a sibling, and {_FEWEST_REPLIES} are the "
            "least; record more: edge-specquant run FAMILY PROMPT --draft q4 --n-draft 8 --record TRACES"
        )
    made = fit_rows(rows, seed=seed)
    pairs = sorted({f"{each.family} {each.target}+{each.draft}" for each in rounds if each.is_measured})
    told = f"{len(rows.inputs)} rows of {len(replies)} replies: {', '.join(pairs)}"
    return Predictor(made.mlp, objective, told), made


def fit_rows(rows: Rows, *, seed: int = 0) -> Fit:
    """Trains on rows of at least two replies."""
    return fit(rows.inputs, rows.outputs, _held_out(rows.reply, seed), hidden=HIDDEN, seed=seed)


def _held_out(reply: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Marks the rows of a share of the replies, one at least."""
    order = np.random.default_rng(seed).permutation(np.unique(reply))
    marked: NDArray[np.bool_] = np.isin(reply, order[: max(1, round(VALIDATION_SHARE * len(order)))])
    return marked


def _reply_rows(reply: Sequence[TraceRound], number: int, same_round: bool) -> Iterator[tuple[float, ...]]:
    pairs = ((each, each) for each in reply) if same_round else pairwise(reply)
    for seen, judged in pairs:
        if not seen.is_measured or not judged.is_measured or judged.size_ratio is None:
            continue
        for length in (seen.n_drafted,) if same_round else GAMMAS:
            summary = summarise(seen.signals[:length])
            if length > seen.n_drafted or summary is None:
                continue
            for gamma in GAMMAS:
                if gamma <= judged.n_drafted:
                    yield (*summary, judged.size_ratio, gamma, min(judged.n_accepted, gamma) / gamma, number)
