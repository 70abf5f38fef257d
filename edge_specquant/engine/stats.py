"""What a reply cost and what speculation did: counted per round, summed once. Unknown is None, never zero."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .signals import Signals


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One draft/verify round: who drafted, tokens drafted and accepted, seconds each side took, verify width with
    padding, tokens in the context before it, what the drafter knew of each token, and how many tokens its first step
    decoded (None: it copied cells too). n_pending: tokens of the history that the target had to decode before the
    draft, one unless a rejected draft cost it a state; undo_s: seconds spent on keeping states and going back."""

    n_drafted: int
    n_accepted: int
    draft_s: float
    verify_s: float
    width: int
    n_past: int = 0
    source: str = "none"
    signals: tuple[Signals, ...] = ()
    n_behind: int | None = 1
    n_pending: int = 1
    undo_s: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether it is what the target alone would have done."""
        return self.n_drafted == 0 and self.n_pending == 1


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """The figures of one reply; seconds in *_s, rates in tokens per second, None where nothing was measured.

    decode_s: all of the loop's time after the first token, but not the reader's between two tokens. Of it, target_s and
    drafter_s were spent in the engine's forwards, sampling_s in samplers and the acceptance of drafts; the rest is
    ours. draft_s and verify_s: whole halves of the rounds. drafted_by: draft tokens by who proposed them; origins:
    tokens of the reply by who wrote them. n_thought: of the generated tokens, those before the answer.
    """

    n_prompt: int
    n_cached: int
    n_generated: int
    ttft_s: float | None
    prefill_s: float
    decode_s: float
    n_rounds: int
    n_drafted: int
    n_accepted: int
    accepted_by_position: tuple[float, ...]
    origins: dict[str, int]
    draft_s: float
    verify_s: float
    speedup_estimate: float | None
    n_draft_reason: str
    n_shifted: int = 0
    target_s: float = 0.0
    drafter_s: float = 0.0
    sampling_s: float = 0.0
    drafted_by: dict[str, int] = field(default_factory=dict)
    n_thought: int = 0

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else None

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens per round: 1 + accepted / rounds."""
        return 1 + self.n_accepted / self.n_rounds if self.n_rounds and self.n_drafted else None

    @property
    def tokens_per_s(self) -> float | None:
        """Decode rate, the first token (which prefill pays for) left out."""
        return (self.n_generated - 1) / self.decode_s if self.n_generated > 1 and self.decode_s > 0 else None

    @property
    def overhead(self) -> float | None:
        """Share of the decode time spent outside the engine's forwards."""
        return 1 - (self.target_s + self.drafter_s) / self.decode_s if self.decode_s > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, derived figures included."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        derived = ("acceptance_rate", "mean_accepted_length", "tokens_per_s", "overhead")
        return plain | {name: getattr(self, name) for name in derived}


@dataclass(slots=True)
class StatsBuilder:
    """Collects while a reply is made."""

    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    ttft_s: float | None = None
    prefill_s: float = 0.0
    decode_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    speedup_estimate: float | None = None
    n_draft_reason: str = ""
    n_shifted: int = 0
    target_s: float = 0.0
    drafter_s: float = 0.0
    sampling_s: float = 0.0
    n_thought: int = 0
    origins: Counter[str] = field(default_factory=Counter)
    drafted_by: Counter[str] = field(default_factory=Counter)
    _tried: Counter[int] = field(default_factory=Counter)
    _kept: Counter[int] = field(default_factory=Counter)

    def add_round(self, record: RoundRecord) -> None:
        """Counts one round; position i is tried when every earlier position was accepted."""
        self.n_rounds += 1
        self.n_drafted += record.n_drafted
        self.n_accepted += record.n_accepted
        self.draft_s += record.draft_s
        self.verify_s += record.verify_s + record.undo_s
        if record.n_drafted:
            self.drafted_by[record.source] += record.n_drafted
        self._tried.update(range(min(record.n_drafted, record.n_accepted + 1)))
        self._kept.update(range(record.n_accepted))

    def build(self) -> SpeculationStats:
        """The finished figures."""
        return SpeculationStats(
            n_prompt=self.n_prompt,
            n_cached=self.n_cached,
            n_generated=self.n_generated,
            ttft_s=self.ttft_s,
            prefill_s=self.prefill_s,
            decode_s=self.decode_s,
            n_rounds=self.n_rounds,
            n_drafted=self.n_drafted,
            n_accepted=self.n_accepted,
            accepted_by_position=tuple(self._kept[i] / self._tried[i] for i in sorted(self._tried)),
            origins=dict(self.origins),
            draft_s=self.draft_s,
            verify_s=self.verify_s,
            speedup_estimate=self.speedup_estimate,
            n_draft_reason=self.n_draft_reason,
            n_shifted=self.n_shifted,
            target_s=self.target_s,
            drafter_s=self.drafter_s,
            sampling_s=self.sampling_s,
            drafted_by=dict(self.drafted_by),
            n_thought=self.n_thought,
        )
