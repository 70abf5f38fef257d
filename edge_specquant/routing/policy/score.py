"""The score: one number for a prompt, a weighted sum of its signals.

Takes features and a policy's weights. Knows no thresholds and no siblings.
"""

from __future__ import annotations

from ..features.features import Features
from .policy import Policy
from .signals import values


def score_of(features: Features, policy: Policy) -> float:
    """bias + sum of weight x signal."""
    return policy.bias + sum(contributions(features, policy).values())


def contributions(features: Features, policy: Policy) -> dict[str, float]:
    """What each weighted signal adds to the score."""
    scaled = values(features)
    return {name: weight * scaled[name] for name, weight in policy.weights.items()}
