"""The router as a runtime holds it: one policy, one parser loading behind, one decision a prompt.

Takes a prompt and what the plan holds; gives a decision that can turn itself into the record of its reply. The only
part of the room with a clock. Knows no models.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from .features.features import extract
from .features.features_spacy import SpacySyntax
from .policy.override import Override
from .policy.policy import Policy
from .records.record import RouteRecord, make_record
from .router import Route, route
from .tier_models import Available


@dataclass(frozen=True, slots=True)
class Decision:
    """A route and the seconds it took, features included."""

    route: Route
    decide_s: float
    prompt: str

    def record(
        self,
        *,
        n_prompt: int,
        n_generated: int,
        ttft_s: float | None,
        decode_s: float,
        acceptance_rate: float | None,
    ) -> RouteRecord:
        """What goes into the traffic file once the reply has ended; tokens, and seconds as in `RouteRecord`."""
        return make_record(
            self.route,
            self.prompt,
            time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            decide_s=self.decide_s,
            n_prompt=n_prompt,
            n_generated=n_generated,
            ttft_s=ttft_s,
            decode_s=decode_s,
            acceptance_rate=acceptance_rate,
        )


class Dispatcher:
    """Decides for one policy. The parser starts to load when the dispatcher is made; no prompt waits for it."""

    def __init__(self, policy: Policy | str | Path, parser: SpacySyntax | None = None) -> None:
        self.policy = policy if isinstance(policy, Policy) else Policy.load(policy)
        self._parser = (parser or SpacySyntax()).start()
        self._told = False

    def decide(
        self,
        prompt: str,
        *,
        n_tokens: int,
        available: Available | Iterable[str],
        history_turns: int = 0,
        max_output: int | None = None,
        override: Override | str | None = None,
    ) -> Decision:
        """prompt: the newest message; n_tokens: its length in the model's tokens; the rest as in `extract` and `route`.

        Raises PlanError, UsageError.
        """
        start = time.perf_counter()
        features = extract(
            prompt, n_tokens=n_tokens, history_turns=history_turns, max_output=max_output, estimator=self._parser
        )
        found = route(features, self.policy, available=available, override=override)
        return Decision(found, time.perf_counter() - start, prompt)

    def take_notice(self) -> str | None:
        """Why the rules judge prompts in spaCy's place: once, then None; None too when all is well."""
        if self._told or not self._parser.notice:
            return None
        self._told = True
        return self._parser.notice
