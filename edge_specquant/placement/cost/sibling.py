"""What planning needs to know of one sibling: its card, its sizes, how close it is to the reference.

Takes a Family (or cards), gives Siblings from best to smallest; reads headers only. Knows nothing of machines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...gguf.family.family import Family
from ...gguf.family.guests import guest, is_guest
from ...gguf.format.header import ModelCard, read_card
from ...gguf.nested.nested import BASE, NESTED
from .footprint import WeightBytes, weight_bytes

# Share of tokens on which a quantized sibling and full precision agree, by bits per weight: what families of 0.5B to 7B
# models showed; a measured value in the manifest replaces it.
_AGREEMENT = ((12.0, 1.0), (8.0, 0.985), (6.2, 0.97), (5.2, 0.955), (4.2, 0.92), (3.2, 0.84), (0.0, 0.70))
_EXPERTS = "_exps."  # tensors that hold all experts of a layer
_FURTHER_TOKENS = 4


GUEST_ACCEPTANCE = 0.65
"""Assumed of a smaller model of another family until replies have shown better: what published pairs lie around."""


@dataclass(frozen=True)
class Sibling:
    """One variant. measured_agreement: top-1 agreement with the reference, if the family was evaluated.

    residual: of a nested target, whose card is its base's: the second file, which refines the base. is_cpu_only: it
    computes on the CPU or not at all, and so must a base that it shares. is_guest: of another
    family; it can only draft.
    """

    name: str
    card: ModelCard
    measured_agreement: float | None = None
    residual: ModelCard | None = None
    is_cpu_only: bool = False
    is_guest: bool = False

    @property
    def path(self) -> Path:
        """The file that the family knows it by."""
        return self.card.path if self.residual is None else self.residual.path

    def holds(self, other: Sibling) -> bool:
        """Whether the other's weights are a part of these: a base in its nested target."""
        return self.residual is not None and other.residual is None and other.card.path == self.card.path

    @cached_property
    def agreement(self) -> float:
        """Share of tokens on which it picks what the reference picks, 0 to 1; measured, else by bits per weight."""
        if self.measured_agreement is not None:
            return self.measured_agreement
        bits_per_weight = 8 * self.n_bytes / self.n_parameters
        return next(share for bits, share in _AGREEMENT if bits_per_weight >= bits)

    @cached_property
    def weights(self) -> WeightBytes:
        """Bytes of the tensors by place, both planes of a nested target together."""
        own = weight_bytes(self.card)
        if self.residual is None:
            return own
        fine = weight_bytes(self.residual)
        return WeightBytes(
            own.n_input + fine.n_input,
            tuple(coarse + extra for coarse, extra in zip(own.layers, fine.layers, strict=True)),
            own.n_output + fine.n_output,
            own.n_head_copy,  # the residual is read where it is mapped
        )

    @cached_property
    def n_read_bytes(self) -> int:
        """Bytes of weights that forwards read: all but the embedding table, unless that is the head too, and but layers
        that only a draft head uses.
        """
        tied = 0 if self.residual is None else weight_bytes(self.residual).n_head_copy
        layers = self.weights.layers[: len(self.weights.layers) - self.card.n_nextn]
        return sum(layers) + self.weights.n_output + self.weights.n_head_copy + tied

    @cached_property
    def n_decode_bytes(self) -> int:
        """Of them, bytes that one token reads: of a mixture's experts only those it is sent to."""
        return self.n_read_bytes - round(self._n_expert_bytes * (1 - self._expert_share(1)))

    @cached_property
    def n_further_bytes(self) -> int:
        """Bytes that each further token of a forward reads besides: experts that none before it was sent to; the mean
        of four tokens, sent independently.
        """
        return round(self._n_expert_bytes * (self._expert_share(_FURTHER_TOKENS) - self._expert_share(1)) / 3)

    @cached_property
    def _n_expert_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.card.tensors if _EXPERTS in tensor.name)

    def _expert_share(self, n_tokens: int) -> float:
        """Share of a layer's experts that so many tokens touch."""
        share = self.card.n_expert_used / self.card.n_expert if self.card.n_expert and self.card.n_expert_used else 1.0
        return 1 - (1 - min(1.0, share)) ** n_tokens

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return self.card.n_tensor_bytes + (self.residual.n_tensor_bytes if self.residual else 0)

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


def siblings_of(family: Family, draft: str | None = None) -> tuple[Sibling, ...]:
    """Every sibling of a family, most bits first; headers only, no hash is checked. Raises GGUFError.

    A draft from elsewhere (FAMILY:SIBLING or PATH.gguf) is added as a guest.
    """
    siblings = []
    is_nested = {BASE, NESTED} <= family.variants.keys()
    for name, variant in family.variants.items():
        agreement = variant.quality.top1_agreement if variant.quality else None
        if name != NESTED:
            siblings.append(Sibling(name, read_card(variant.path), agreement, None, is_nested and name == BASE))
        elif is_nested:
            base = read_card(family.variants[BASE].path)
            siblings.append(Sibling(name, base, agreement, read_card(variant.path), is_cpu_only=True))
    if draft is not None and is_guest(draft):
        found = guest(draft)
        siblings.append(Sibling(found.name, read_card(found.variant.path), is_guest=True))
    return by_quality(siblings)


def by_quality(siblings: list[Sibling]) -> tuple[Sibling, ...]:
    """Most bytes first: among siblings of one checkpoint more bits are never worse."""
    return tuple(sorted(siblings, key=lambda sibling: -sibling.n_bytes))


def expected_acceptance(target: Sibling, draft: Sibling) -> float:
    """Chance that the target accepts one draft token: what the draft's own agreement leaves, seen from the target.

    Two siblings err on the same hard tokens, so the target's own distance from the reference costs little.
    """
    if draft.is_guest:
        return GUEST_ACCEPTANCE
    return max(0.0, min(1.0, draft.agreement - 0.25 * (1.0 - target.agreement)))
