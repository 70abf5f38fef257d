"""Prompts, features and made-up measurements for the routing room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge_specquant.routing.features.features import Features
from edge_specquant.routing.records.measurements import Measured, SiblingMeasure
from edge_specquant.routing.records.prompts import Prompt, read_prompts

PROMPTS = Path(__file__).parents[1] / "data" / "prompts300.jsonl"
RATES = {"q4": (0.002, 0.010), "q8": (0.003, 0.013), "f16": (0.004, 0.020)}
Agreements = Callable[[Features, np.random.Generator], dict[str, float]]


@pytest.fixture(scope="session")
def prompts() -> list[Prompt]:
    """The labelled set of this project."""
    return read_prompts(PROMPTS)


def features(**given: object) -> Features:
    """Plain English features with some fields set."""
    plain: dict[str, object] = {
        "n_tokens": 20,
        "n_words": 15,
        "sentence_words": 8.0,
        "depth": 3.0,
        "clauses": 1.0,
        "entity_density": 0.05,
        "code_share": 0.0,
        "digit_share": 0.0,
        "math_share": 0.0,
        "n_questions": 1,
        "n_demands": 0,
        "requested_tokens": None,
        "history_turns": 0,
        "language": "en",
        "kind": "prose",
        "estimator": "rules",
        "sampled": False,
    }
    return Features(**(plain | given))  # type: ignore[arg-type]


@pytest.fixture
def make_features() -> Callable[..., Features]:
    return features


@pytest.fixture
def make_measured() -> Callable[..., list[Measured]]:
    """n prompts with random features; `agreements` says how well each sibling follows."""

    def make(n: int, agreements: Agreements, seed: int = 7) -> list[Measured]:
        rng = np.random.default_rng(seed)
        return [_one(number, agreements, rng) for number in range(n)]

    return make


def _one(number: int, agreements: Agreements, rng: np.random.Generator) -> Measured:
    seen = features(
        n_tokens=int(rng.integers(2, 400)),
        depth=float(rng.uniform(0, 12)),
        math_share=float(rng.uniform(0, 0.4)),
        n_demands=int(rng.integers(0, 6)),
    )
    agreement = agreements(seen, rng) | {"f16": 1.0}
    siblings = {name: SiblingMeasure(agreement[name], 0.0, *RATES[name]) for name in RATES}
    return Measured(
        id=f"p{number}",
        group=f"g{number // 2}",
        reference="f16",
        n_prompt=seen.n_tokens,
        n_reply=48,
        features=seen,
        siblings=siblings,
        decide_s=0.001,
    )
