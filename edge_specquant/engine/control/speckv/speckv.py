"""SpecKV: a small network reads how sure the last draft was and picks the next draft length.

After Shukla, "SpecKV: Adaptive Speculative Decoding with Compression-Aware Gamma Selection" (arXiv 2605.02888). Two
objectives: most expected tokens per round (the paper's; it knows no cost, so it cannot draft less than 2), and most
expected tokens per second from the measured cost curve, where plain decoding is one of the choices and a ledger bounds
the loss. Takes signals, costs and outcomes; never a token. `speckv_training.py` makes the network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .... import config
from ....errors import FileError
from ...signals import Choice, Offer, Signals
from ...stats import RoundRecord
from ..costs import Costs
from ..ledger import Ledger, settle
from ..prices import RoundPrice, Seconds
from .mlp import Mlp, Values

GAMMAS = (2, 4, 6, 8)
FEATURES = ("mean entropy", "max entropy", "mean confidence", "min confidence", "compression", "gamma")
OBJECTIVES = ("tokens", "rate")
HIDDEN = 16
FILE_NAME = "speckv.json"
_FORMAT = 1
_OPENING_GAMMA = 4  # before any signal: the paper's baseline
_COOL_DOWN = 16  # plain rounds after which a short draft is tried again, since plain rounds bring no signals
_OPENING_CREDIT = 1.0  # in single-token forwards of the target: what the first bet may cost
_MIN_GAIN = 1.02  # a draft must promise this much over plain decoding


class Summary(NamedTuple):
    """How sure a draft was: entropy in nats, confidence as probability."""

    mean_entropy: float
    max_entropy: float
    mean_confidence: float
    min_confidence: float


def summarise(signals: Sequence[Signals]) -> Summary | None:
    """None for lookups, empty drafts and entropies that were not measured."""
    entropy = [signal.entropy for signal in signals if signal.entropy is not None]
    confidence = [signal.confidence for signal in signals if signal.confidence is not None]
    if not signals or len(entropy) < len(signals) or len(confidence) < len(signals):
        return None
    n = len(signals)
    return Summary(sum(entropy) / n, max(entropy), sum(confidence) / n, min(confidence))


@dataclass(frozen=True, slots=True)
class Predictor:
    """A trained network with the objective it serves. trained_on says from what, in a sentence."""

    mlp: Mlp
    objective: str
    trained_on: str

    def acceptance(self, summary: Summary, compression: float, gammas: Sequence[int] = GAMMAS) -> Values:
        """Expected accepted / gamma for each gamma, within 0..1."""
        inputs = np.array([(*summary, compression, gamma) for gamma in gammas], dtype=np.float64)
        return np.clip(self.mlp.predict(inputs), 0.0, 1.0)

    def as_text(self) -> str:
        """The JSON form."""
        plain = {"format": _FORMAT, "objective": self.objective, "trained_on": self.trained_on}
        return json.dumps(plain | {"mlp": self.mlp.as_dict()}, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Predictor:
        """Raises KeyError, TypeError, ValueError for anything but `as_text`."""
        plain: Mapping[str, Any] = json.loads(text)
        if plain["format"] != _FORMAT:
            raise ValueError(f"format {plain['format']}, not {_FORMAT}")
        if plain["objective"] not in OBJECTIVES:
            raise ValueError(f"objective {plain['objective']!r}")
        mlp = Mlp.from_dict(plain["mlp"])
        if mlp.n_inputs != len(FEATURES):
            raise ValueError(f"{mlp.n_inputs} inputs, not {len(FEATURES)}")
        return cls(mlp, plain["objective"], str(plain["trained_on"]))


def user_predictor_path() -> Path:
    """Where `gamma train` puts a network and replies look for it."""
    return config.data_folder().path / FILE_NAME


def read_predictor(path: Path) -> Predictor:
    """Raises FileError."""
    try:
        return Predictor.from_text(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"{path} is no trained network ({error!r}); make it again: edge-specquant gamma train TRACES"
        ) from error


def find_predictor() -> Predictor | None:
    """The user's own network, else the one that ships with the program, else None. Raises FileError."""
    own = user_predictor_path()
    if own.is_file():
        return read_predictor(own)
    shipped = resources.files(__package__) / FILE_NAME
    return Predictor.from_text(shipped.read_text(encoding="utf-8")) if shipped.is_file() else None


class SpecKV:
    """One per request. compression_of: a draft's weights in bytes over the target's, by the draft's name."""

    def __init__(self, predictor: Predictor, costs: Costs, widest: int, compression_of: Callable[[str], float]) -> None:
        self._predictor = predictor
        self._costs = costs
        self._widest = min(widest, GAMMAS[-1])
        self._compression_of = compression_of
        self._previous: Summary | None = None
        self._round = RoundPrice(costs, Seconds())
        self._n_plain = 0
        self._ledger = Ledger()
        self._why = "nothing drafted yet"

    @property
    def reason(self) -> str:
        """What was predicted for the last choice."""
        return self._why

    @property
    def speedup_estimate(self) -> float | None:
        """Time the target alone would have taken over the time taken, decoding only."""
        return self._ledger.gain

    def limit(self) -> int:
        """The largest gamma."""
        return self._widest

    def choose(self, offers: Sequence[Offer], limit: int) -> Choice | None:
        """A gamma for the first sibling that offers; a lookup only where no sibling does, and then all of it."""
        index = next((i for i, offer in enumerate(offers) if offer.match_length is None), None)
        if index is None:
            return Choice(0, min(limit, offers[0].n_max)) if offers else None
        n_max = min(limit, self._widest, offers[index].n_max)
        gamma = self._gamma(offers[index], n_max)
        return Choice(index, gamma) if gamma else None

    def should_continue(self, signals: Signals) -> bool:
        """Always: gamma was chosen before the draft."""
        del signals
        return True

    def observe(self, record: RoundRecord) -> None:
        """Keeps the draft's summary for the next choice; learns costs and books the round in the ledger."""
        self._ledger.book(*settle(record, self._costs))
        self._round.move_to(record)
        self._n_plain = 0 if record.n_drafted else self._n_plain + 1
        self._previous = summarise(record.signals) or self._previous

    # -- the choice -------------------------------------------------------------------------------------------------

    def _gamma(self, offer: Offer, n_max: int) -> int:
        gammas = [gamma for gamma in GAMMAS if gamma <= n_max] or ([n_max] if n_max > 0 else [])
        if not gammas:
            return 0
        if self._predictor.objective == "rate":
            gammas = [gamma for gamma in gammas if self._covered(offer, gamma)]
        if self._previous is None or not gammas:
            self._why = "the target alone: the loss so far allows no bet" if not gammas else "no draft seen yet"
            return max((gamma for gamma in gammas if gamma <= _OPENING_GAMMA), default=0)
        accepted = self._predictor.acceptance(self._previous, self._compression_of(offer.source), gammas)
        tokens = {gamma: 1 + gamma * float(rate) for gamma, rate in zip(gammas, accepted, strict=True)}
        if self._predictor.objective == "tokens":
            best = max(tokens, key=tokens.__getitem__)
            self._why = f"{best} ahead predicted {tokens[best]:.1f} tokens a round"
            return best
        return self._fastest(offer, tokens)

    def _fastest(self, offer: Offer, tokens: Mapping[int, float]) -> int:
        """The gamma with most tokens per second; 0 where none beats plain decoding."""
        alone = 1.0 / self._round.plain()
        rates = {gamma: count / self._round.whole(offer, gamma) / alone for gamma, count in tokens.items()}
        best = max(rates, key=rates.__getitem__)
        if rates[best] >= _MIN_GAIN:
            self._why = f"{best} ahead predicted {rates[best]:.2f}x"
            return best
        if self._n_plain >= _COOL_DOWN:
            self._why = "a try after a while without drafts"
            return min(rates)
        self._why = f"no gamma pays here (best {best} ahead: {rates[best]:.2f}x)"
        return 0

    def _covered(self, offer: Offer, gamma: int) -> bool:
        """Whether the ledger bears the round's worst case: nothing accepted."""
        one = self._round.plain()
        return self._round.whole(offer, gamma) - one <= self._ledger.credit(_OPENING_CREDIT * one)
