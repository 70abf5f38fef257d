"""Which weight type each tensor gets, and why. Pure: names and shapes in, choices out.

The rule, in one table (`VARIANTS`): a variant has a type for rows that are multiples of 256 (K-quants need them), one
for narrower rows (multiples of 32) with at least the bits that were asked for, and a type for the tensors that suffer
most. Rows that fit neither stay F16. The output head, or the tied embedding that acts as one, follows the same rule: in
a 4-bit draft it is a third of the cost, so it is 4-bit too. Knows nothing of files, engines or machines.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import UsageError
from ..format.container import TensorInfo
from ..format.weight_types import BY_NAME, WeightType


@dataclass(frozen=True, slots=True)
class VariantRule:
    """One row of the table: weight types by row length, and what the variant is good for."""

    name: str
    wide: str
    narrow: str
    sensitive_wide: str
    sensitive_narrow: str
    purpose: str


VARIANTS: dict[str, VariantRule] = {
    rule.name: rule
    for rule in (
        VariantRule("f16", "F16", "F16", "F16", "F16", "reference and target"),
        VariantRule("bf16", "BF16", "BF16", "BF16", "BF16", "reference that keeps the range of a BF16 checkpoint"),
        VariantRule("q8", "Q8_0", "Q8_0", "Q8_0", "Q8_0", "target: nearly lossless in half the bytes"),
        VariantRule("q6", "Q6_K", "Q8_0", "Q6_K", "Q8_0", "target for little memory"),
        VariantRule("q5", "Q5_K", "Q5_0", "Q6_K", "Q8_0", "target for little memory"),
        VariantRule("q4", "Q4_K", "Q4_0", "Q6_K", "Q8_0", "draft, or a small target"),
        VariantRule("q4_0", "Q4_0", "Q4_0", "Q6_K", "Q8_0", "draft: the fastest kernels on a CPU"),
        VariantRule("iq4_nl", "IQ4_NL", "IQ4_NL", "Q6_K", "Q8_0", "draft: better with an importance matrix"),
        VariantRule("q3", "Q3_K", "IQ4_NL", "Q5_K", "Q5_0", "draft for very little memory"),
        VariantRule("q2", "Q2_K", "IQ4_NL", "Q4_K", "Q5_0", "draft for very little memory, coarse"),
    )
}
"""Variant name -> rule. Narrow rows of q4 take Q4_0, not IQ4_NL: same bits, and the repacked CPU kernels are faster."""

DEFAULT_VARIANTS = ("f16", "q8", "q4")
_SPARED_BELOW_BITS = 4.0  # below four bits the sensitive tensors are always kept higher: the whole model breaks without
_NEVER_QUANTIZED = re.compile(r"_norm\.weight|ffn_gate_inp|ssm_conv1d|shortconv\.conv|altup|laurel|per_layer_model")
_LAYER = re.compile(r"blk\.(\d+)\.(.+)\.weight")


@dataclass(frozen=True, slots=True)
class TensorChoice:
    """One tensor's fate. `fell_back`: its rows did not fit the variant's own type."""

    tensor: TensorInfo
    weight_type: WeightType
    reason: str
    fell_back: bool

    @property
    def n_bytes(self) -> int:
        return self.weight_type.n_bytes(self.tensor.n_weights)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The choices for one variant, with totals."""

    variant: str
    choices: tuple[TensorChoice, ...]

    @property
    def n_tensor_bytes(self) -> int:
        return sum(choice.n_bytes for choice in self.choices)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.n_tensor_bytes / max(1, sum(choice.tensor.n_weights for choice in self.choices))

    @property
    def weight_type_counts(self) -> dict[str, int]:
        return dict(Counter(choice.weight_type.name for choice in self.choices).most_common())

    @property
    def main_type(self) -> str:
        """The weight type that holds the most weights: the file's own type."""
        sums: Counter[str] = Counter()
        for choice in self.choices:
            sums[choice.weight_type.name] += choice.tensor.n_weights
        return sums.most_common(1)[0][0]

    @property
    def takes_imatrix(self) -> bool:
        """Whether an importance matrix changes the file: at eight bits and above the engine does not look at it."""
        return BY_NAME[self.main_type].bits_per_weight < 8

    @property
    def sha256(self) -> str:
        """Fingerprint of every choice: equal recipes make equal files from equal sources."""
        lines = (f"{choice.tensor.name} {choice.weight_type.name}" for choice in self.choices)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def fallen_back(self) -> tuple[TensorChoice, ...]:
        return tuple(choice for choice in self.choices if choice.fell_back)

    @property
    def tensor_types(self) -> dict[str, str]:
        """Tensor name -> weight type, for the tensors that differ from the file's own type.

        Empty for a float file: the engine casts every matrix then, and takes no exception.
        """
        if not BY_NAME[self.main_type].is_quantized:
            return {}
        differing = (choice for choice in self.choices if choice.weight_type.name != self.main_type)
        return {choice.tensor.name: choice.weight_type.name for choice in differing if may_quantize(choice.tensor)}

    def describe_fallback(self) -> str | None:
        """One sentence on the tensors that could not take the variant's own type, or None."""
        if not self.fallen_back:
            return None
        rule = VARIANTS[self.variant]
        n_bytes = sum(choice.n_bytes for choice in self.fallen_back)
        types = ", ".join(sorted({choice.weight_type.name for choice in self.fallen_back}))
        rows = ", ".join(str(n) for n in sorted({choice.tensor.shape[0] for choice in self.fallen_back}))
        return (
            f"{len(self.fallen_back)} of {len(self.choices)} tensors ({n_bytes} bytes) have rows of {rows} weights, "
            f"which {rule.wide} cannot hold (it needs multiples of {BY_NAME[rule.wide].n_per_block}) and take {types}; "
            f"the whole file has {self.bits_per_weight:.2f} bits per weight"
        )


def rule_for(variant: str) -> VariantRule:
    """The table's row. Raises UsageError naming the variants there are."""
    rule = VARIANTS.get(variant.lower())
    if rule is None:
        raise UsageError(f"there is no variant '{variant}'; the variants are {', '.join(VARIANTS)}")
    return rule


def plan_recipe(tensors: Iterable[TensorInfo], variant: str, *, spare_sensitive: bool = False) -> Recipe:
    """Chooses a weight type for every tensor of one model.

    spare_sensitive keeps attn_v and ffn_down of the first and last eighth of the layers at the variant's higher type (a
    target gains from it, a draft pays for it). Raises UsageError for an unknown variant.
    """
    rule = rule_for(variant)
    listed = tuple(tensors)
    n_layer = 1 + max((int(match[1]) for tensor in listed if (match := _LAYER.match(tensor.name))), default=0)
    spare = spare_sensitive or BY_NAME[rule.wide].bits_per_weight < _SPARED_BELOW_BITS
    tied = all(tensor.name != "output.weight" for tensor in listed)
    return Recipe(rule.name, tuple(_choose(tensor, rule, n_layer, spare, tied) for tensor in listed))


def may_quantize(tensor: TensorInfo) -> bool:
    """Matrices of weights only: norms, biases and the small tensors the engine wants exact are left alone."""
    is_matrix = any(size > 1 for size in tensor.shape[1:])
    return is_matrix and tensor.name.endswith("weight") and not _NEVER_QUANTIZED.search(tensor.name)


def _choose(tensor: TensorInfo, rule: VariantRule, n_layer: int, spare: bool, tied: bool) -> TensorChoice:
    if not may_quantize(tensor):
        return TensorChoice(tensor, tensor.weight_type, "norm, bias or other small tensor: kept as it is", False)
    sensitive = spare and _is_sensitive(tensor.name, n_layer)
    wide, narrow = (rule.sensitive_wide, rule.sensitive_narrow) if sensitive else (rule.wide, rule.narrow)
    role = "sensitive tensor: kept higher" if sensitive else _role(tensor.name, tied)
    n_per_row = tensor.shape[0]
    if BY_NAME[wide].fits(n_per_row):
        return TensorChoice(tensor, BY_NAME[wide], role, False)
    if BY_NAME[narrow].fits(n_per_row):
        why = f"{role}; rows of {n_per_row} are no multiple of {BY_NAME[wide].n_per_block}: {narrow} instead of {wide}"
        return TensorChoice(tensor, BY_NAME[narrow], why, True)
    why = f"{role}; rows of {n_per_row} are no multiple of {BY_NAME[narrow].n_per_block}: F16 instead of {wide}"
    return TensorChoice(tensor, BY_NAME["F16"], why, True)


def _role(name: str, tied: bool) -> str:
    if name == "output.weight":
        return "output head"
    if name == "token_embd.weight":
        return "token embedding, also the output head" if tied else "token embedding"
    return "weight matrix"


def _is_sensitive(name: str, n_layer: int) -> bool:
    """attn_v and ffn_down near both ends of the stack carry most error into the logits, as in llama.cpp's own mixes."""
    match = _LAYER.match(name)
    if match is None:
        return name == "output.weight"
    layer, part = int(match[1]), match[2]
    near_an_end = layer < max(1, n_layer // 8) or layer >= n_layer - max(1, n_layer // 8)
    return part in ("attn_v", "attn_qkv", "ffn_down") and near_an_end
