"""What planning needs to know of one sibling: its card, its sizes, how close it is to the reference.

Takes a Family (or cards), gives Siblings from best to smallest; reads headers only. Knows nothing of machines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ..gguf.family import Family
from ..gguf.header import ModelCard, read_card
from ..gguf.nested import NESTED
from .footprint import WeightBytes, weight_bytes

# Share of tokens on which a quantized sibling and full precision agree, by bits per weight: what families of 0.5B to 7B
# models showed; a measured value in the manifest replaces it.
_AGREEMENT = ((12.0, 1.0), (8.0, 0.985), (6.2, 0.97), (5.2, 0.955), (4.2, 0.92), (3.2, 0.84), (0.0, 0.70))


@dataclass(frozen=True)
class Sibling:
    """One variant. measured_agreement: top-1 agreement with the reference, if the family was evaluated."""

    name: str
    card: ModelCard
    measured_agreement: float | None = None

    @cached_property
    def agreement(self) -> float:
        """Share of tokens on which it picks what the reference picks, 0 to 1; measured, else by bits per weight."""
        if self.measured_agreement is not None:
            return self.measured_agreement
        return next(share for bits, share in _AGREEMENT if self.card.bits_per_weight >= bits)

    @cached_property
    def weights(self) -> WeightBytes:
        """Bytes of the tensors by place."""
        return weight_bytes(self.card)

    @cached_property
    def n_decode_bytes(self) -> int:
        """Bytes of weights one forward reads: all but the embedding table, unless that is the head too."""
        return sum(self.weights.layers) + self.weights.n_output + self.weights.n_head_copy

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return self.card.n_tensor_bytes

    @cached_property
    def main_type(self) -> str:
        """The weight type that most bytes are in."""
        by_type: Counter[str] = Counter()
        for tensor in self.card.tensors:
            by_type[tensor.weight_type.name] += tensor.n_bytes
        return by_type.most_common(1)[0][0]

    @cached_property
    def n_parameters(self) -> int:
        """Weights in all tensors."""
        return self.card.n_parameters


def siblings_of(family: Family) -> tuple[Sibling, ...]:
    """Every sibling of a family, most bits first; headers only, no hash is checked. Raises GGUFError."""
    siblings = [
        Sibling(name, read_card(variant.path), variant.quality.top1_agreement if variant.quality else None)
        for name, variant in family.variants.items()
        if name != NESTED  # its file alone is no model, and the planner cannot count weights that two siblings share
    ]
    return by_quality(siblings)


def by_quality(siblings: list[Sibling]) -> tuple[Sibling, ...]:
    """Most bytes first: among siblings of one checkpoint more bits are never worse."""
    return tuple(sorted(siblings, key=lambda sibling: -sibling.n_bytes))


def expected_acceptance(target: Sibling, draft: Sibling) -> float:
    """Chance that the target accepts one draft token: what the draft's own agreement leaves, seen from the target.

    Two siblings err on the same hard tokens, so the target's own distance from the reference costs little.
    """
    return max(0.0, min(1.0, draft.agreement - 0.25 * (1.0 - target.agreement)))
