"""Measured prompts as if they had been traffic: routed by a policy, timed by their measurements.

Takes measurements by prompt hash, gives route records of siblings answering alone. Knows no models.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..policy.policy import Policy
from ..records.measurements import Measured
from ..records.record import RouteRecord
from ..router import route


def replay_measured(measured: Mapping[str, Measured], policy: Policy) -> list[RouteRecord]:
    """One record a prompt; time is empty, since none passed."""
    return [_replay(prompt_hash, one, policy) for prompt_hash, one in measured.items()]


def _replay(prompt_hash: str, measured: Measured, policy: Policy) -> RouteRecord:
    decided = route(measured.features, policy, available=tuple(measured.siblings))
    rate = measured.siblings[decided.target]
    return RouteRecord(
        **{name: getattr(decided, name) for name in decided.__slots__},
        time="",
        prompt_hash=prompt_hash,
        decide_s=measured.decide_s,
        n_prompt=measured.n_prompt,
        n_generated=measured.n_reply,
        ttft_s=(measured.decide_s or 0.0) + measured.n_prompt * rate.prefill_s_per_token,
        decode_s=max(0, measured.n_reply - 1) * rate.decode_s_per_token,
        acceptance_rate=None,
    )
