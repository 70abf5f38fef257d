"""Laws of the recipe: true bits, no type that rows cannot hold, the head as small as the rest (C5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_specquant.errors import UsageError
from edge_specquant.gguf.format.container import TensorInfo
from edge_specquant.gguf.format.weight_types import BY_NAME
from edge_specquant.gguf.quantize.recipe import VARIANTS, plan_recipe

F16 = BY_NAME["F16"]
F32 = BY_NAME["F32"]


def model(n_embd: int, n_layer: int = 2, *, tied: bool = True) -> list[TensorInfo]:
    """The tensor table of a small Llama."""
    tensors = [
        TensorInfo("token_embd.weight", (n_embd, 1000), F16, 0),
        TensorInfo("output_norm.weight", (n_embd,), F32, 0),
    ]
    if not tied:
        tensors.append(TensorInfo("output.weight", (n_embd, 1000), F16, 0))
    for layer in range(n_layer):
        block = f"blk.{layer}"
        tensors.append(TensorInfo(f"{block}.attn_norm.weight", (n_embd,), F32, 0))
        tensors.append(TensorInfo(f"{block}.attn_q.bias", (n_embd,), F32, 0))
        tensors += [TensorInfo(f"{block}.{part}.weight", (n_embd, n_embd), F16, 0) for part in ("attn_q", "attn_v")]
        tensors.append(TensorInfo(f"{block}.ffn_down.weight", (4 * n_embd, n_embd), F16, 0))
    return tensors


@given(st.integers(1, 40).map(lambda k: 16 * k), st.sampled_from(sorted(VARIANTS)), st.booleans(), st.booleans())
def test_every_choice_fits_its_rows_and_small_tensors_are_kept(
    n_embd: int, variant: str, tied: bool, spare: bool
) -> None:
    tensors = model(n_embd, tied=tied)
    recipe = plan_recipe(tensors, variant, spare_sensitive=spare)
    assert [choice.tensor for choice in recipe.choices] == tensors
    for choice in recipe.choices:
        assert choice.weight_type.fits(choice.tensor.shape[0])
        assert choice.reason
        if len(choice.tensor.shape) == 1:
            assert choice.weight_type == choice.tensor.weight_type
    assert recipe.n_tensor_bytes == sum(choice.n_bytes for choice in recipe.choices)
    assert (recipe.describe_fallback() is None) == (not recipe.fallen_back)


@given(st.integers(1, 40).map(lambda k: 32 * k), st.sampled_from(sorted(VARIANTS)), st.booleans())
def test_a_narrow_row_never_gets_fewer_bits_than_were_asked_for(n_embd: int, variant: str, tied: bool) -> None:
    asked = BY_NAME[VARIANTS[variant].wide].bits_per_weight
    for choice in plan_recipe(model(n_embd, tied=tied), variant).choices:
        assert choice.weight_type.bits_per_weight >= asked


@pytest.mark.parametrize("n_embd", [576, 896, 288])
@pytest.mark.parametrize("tied", [True, False])
def test_rows_no_k_quant_can_hold_get_a_real_four_bit_type_and_a_sentence(n_embd: int, tied: bool) -> None:
    recipe = plan_recipe(model(n_embd, tied=tied), "q4")
    matrices = [choice for choice in recipe.choices if len(choice.tensor.shape) > 1]
    assert all(choice.weight_type.bits_per_weight == 4.5 for choice in matrices)
    narrow = [choice for choice in matrices if choice.tensor.shape[0] == n_embd]
    assert all(choice.weight_type.name == "Q4_0" and choice.fell_back for choice in narrow)
    sentence = recipe.describe_fallback()
    assert sentence is not None
    assert f"{len(recipe.fallen_back)} of {len(recipe.choices)} tensors" in sentence
    assert f"{recipe.bits_per_weight:.2f} bits per weight" in sentence


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_of_the_four_bit_sibling_is_four_bit(tied: bool) -> None:
    recipe = plan_recipe(model(256, tied=tied), "q4")
    head = "token_embd.weight" if tied else "output.weight"
    (choice,) = (choice for choice in recipe.choices if choice.tensor.name == head)
    assert choice.weight_type.name == "Q4_K"
    assert recipe.describe_fallback() is None


def test_sensitive_tensors_are_kept_higher_on_request_and_always_below_four_bits() -> None:
    tensors = model(256, 8, tied=False)
    plain, spared = plan_recipe(tensors, "q4"), plan_recipe(tensors, "q4", spare_sensitive=True)
    assert spared.bits_per_weight > plain.bits_per_weight
    raised = {choice.tensor.name for choice in spared.choices if choice.weight_type.name == "Q6_K"}
    ends = {f"blk.{layer}.{part}.weight" for layer in (0, 7) for part in ("attn_v", "ffn_down")}
    assert raised == ends | {"output.weight"}
    assert plan_recipe(tensors, "q2").weight_type_counts["Q4_K"] == len(raised)


def test_rows_of_odd_length_stay_f16() -> None:
    recipe = plan_recipe(model(40), "q8")
    assert {choice.weight_type.name for choice in recipe.choices if choice.tensor.shape[0] == 40} == {"F16", "F32"}


def test_an_unknown_variant_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no variant 'q9'.*f16.*q4"):
        plan_recipe(model(256), "q9")
