"""The routing problem as arrays: signals, seconds and agreement of every measured prompt in every tier.

Takes measurements, gives a `Problem`. Seconds are rebuilt from each sibling's median rate, so that one busy moment of
the machine does not favour a sibling. Knows no router.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import FileError
from ..policy.signals import NAMES, values
from ..records.measurements import Measured
from ..tier_models import precision

Floats = NDArray[np.float64]
MIN_PROMPTS = 20


@dataclass(frozen=True, slots=True)
class Rate:
    """Median seconds a token of one sibling."""

    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class Problem:
    """n prompts. signals (n, k) in the order of signals.NAMES; seconds, agreement (n, s) in the order of `siblings`.

    siblings: every measured one, the most precise last. tiers: the sibling of low, medium and high, as columns.
    groups (n,): prompts with one number stay on one side of a split.
    unsafe (n,): prompts that no score decides; they take the safe tier.
    """

    siblings: tuple[str, ...]
    tiers: tuple[int, int, int]
    signals: Floats
    seconds: Floats
    agreement: Floats
    groups: NDArray[np.int64]
    rates: tuple[Rate, ...]
    unsafe: NDArray[np.bool_]

    @property
    def length(self) -> Floats:
        """The length signal, (n,)."""
        return self.signals[:, NAMES.index("length")]

    @property
    def tier_seconds(self) -> Floats:
        """(n, 3)."""
        return self.seconds[:, self.tiers]

    @property
    def tier_agreement(self) -> Floats:
        """(n, 3)."""
        return self.agreement[:, self.tiers]


def build_problem(measured: Sequence[Measured]) -> Problem:
    """Raises FileError when there are too few measurements or they are of different siblings."""
    if len(measured) < MIN_PROMPTS:
        raise FileError(f"{len(measured)} prompts are measured; a fit needs at least {MIN_PROMPTS}")
    reference = measured[0].reference
    names = tuple(sorted(measured[0].siblings, key=lambda name: (name == reference, precision(name))))
    for one in measured:
        if one.reference != reference or set(one.siblings) != set(names):
            raise FileError(f"prompt {one.id} was measured with {', '.join(one.siblings)}, not {', '.join(names)}")
    if len(names) < 2:
        raise FileError(f"only {reference} was measured; a router needs a cheaper sibling to choose")
    rates = tuple(_median_rate(measured, name) for name in names)
    tokens = np.array([(one.n_prompt, one.n_reply) for one in measured], dtype=np.float64)
    group_numbers = {group: number for number, group in enumerate(dict.fromkeys(one.group for one in measured))}
    return Problem(
        siblings=names,
        tiers=_tiers(names),
        signals=np.array([[values(one.features)[name] for name in NAMES] for one in measured]),
        seconds=tokens @ np.array([(rate.prefill_s, rate.decode_s) for rate in rates]).T,
        agreement=np.array([[one.siblings[name].agreement for name in names] for one in measured]),
        groups=np.array([group_numbers[one.group] for one in measured]),
        rates=rates,
        unsafe=np.array([one.features.unsafe_reason is not None for one in measured]),
    )


def _tiers(names: tuple[str, ...]) -> tuple[int, int, int]:
    """The cheapest, the most precise below the reference, the reference."""
    last = len(names) - 1
    return 0, last - 1, last


def _median_rate(measured: Sequence[Measured], name: str) -> Rate:
    prefill = [one.siblings[name].prefill_s_per_token for one in measured]
    decode = [one.siblings[name].decode_s_per_token for one in measured]
    return Rate(float(np.median(prefill)), float(np.median(decode)))
