"""How likely a draft token is to be accepted, from what became of similar ones. Pure.

Similar means: the same drafter and about the same confidence (a sibling), or about as long a match (a lookup). Each
class is a Beta estimate that starts at a prior, learns from outcomes, and drifts back to the prior while unused, so
that nothing sticks.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..signals import Signals

_CONFIDENCE_STEPS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
_CONFIDENCE_PRIORS = (0.15, 0.3, 0.45, 0.6, 0.72, 0.83, 0.91, 0.96, 0.99)
_MATCH_STEPS = (3, 4, 6, 9, 16, 24)
_MATCH_PRIORS = (0.25, 0.38, 0.5, 0.65, 0.8, 0.9, 0.95)
_AVERAGE_PRIOR = 0.9  # hopeful: what is never tried is never learnt, and the ledger pays for being wrong
_PRIOR_WEIGHT = 3.0
_REMEMBERED = 60.0  # evidence beyond so many outcomes forgets the oldest
_AGEING = 0.985  # evidence kept per token written without asking the drafter


@dataclass(slots=True)
class _Beta:
    prior: float
    hits: float = 0.0
    trials: float = 0.0

    @property
    def mean(self) -> float:
        return (self.hits + self.prior * _PRIOR_WEIGHT) / (self.trials + _PRIOR_WEIGHT)

    def learn(self, hit: bool) -> None:
        keep = min(1.0, (_REMEMBERED - 1) / max(self.trials, 1.0))
        self.hits = self.hits * keep + hit
        self.trials = self.trials * keep + 1

    def age(self) -> None:
        self.hits *= _AGEING
        self.trials *= _AGEING


class Acceptance:
    """Estimates for every class of every drafter."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, int], _Beta] = {}
        self._running: dict[str, _Beta] = {}

    def of(self, signals: Signals) -> float:
        """Probability that this token is accepted when those before it were."""
        return self._class(signals).mean

    def at_start(self, source: str, match_length: int | None) -> float:
        """The same before anything is drafted: the class of the match, or the drafter's running average."""
        if match_length is not None:
            return self._class(Signals(0, source, match_length=match_length)).mean
        return self._average(source).mean

    def learn(self, signals: tuple[Signals, ...], n_accepted: int) -> None:
        """The first n_accepted tokens stood; the one after them did not; later ones were never judged."""
        for i, signal in enumerate(signals[: n_accepted + 1]):
            hit = i < n_accepted
            self._class(signal).learn(hit)
            if signal.match_length is None:
                self._average(signal.source).learn(hit)

    def age(self) -> None:
        """One token was written without a draft."""
        for beta in (*self._classes.values(), *self._running.values()):
            beta.age()

    def _class(self, signals: Signals) -> _Beta:
        if signals.match_length is not None:
            number, prior = _step(signals.match_length, _MATCH_STEPS, _MATCH_PRIORS)
        else:
            confidence = 0.7 if signals.confidence is None else signals.confidence
            number, prior = _step(confidence, _CONFIDENCE_STEPS, _CONFIDENCE_PRIORS)
        return self._classes.setdefault((signals.source, number), _Beta(prior))

    def _average(self, source: str) -> _Beta:
        return self._running.setdefault(source, _Beta(_AVERAGE_PRIOR))


def _step(value: float, steps: tuple[float, ...], priors: tuple[float, ...]) -> tuple[int, float]:
    number = sum(value >= step for step in steps)
    return number, priors[number]
