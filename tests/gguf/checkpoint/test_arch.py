"""Every architecture: the engine's logits of our GGUF are those of a reference written in numpy (C3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_reference import forward
from tiny_checkpoints import CONFIGS, config_of, random_weights, write_checkpoint

from edge_specquant.errors import CheckpointError
from edge_specquant.gguf.checkpoint.arch import (
    ARCHITECTURES,
    Hparams,
    find_architecture,
    metadata_fields,
    tensor_rules,
)
from edge_specquant.gguf.checkpoint.base import plan_base, replace_float, write_base
from edge_specquant.gguf.checkpoint.checkpoint import open_checkpoint
from edge_specquant.gguf.format.header import read_card
from edge_specquant.native.opening import open_model
from edge_specquant.native.protocol import ContextParams

TOKENS = [(i * 37 + 11) % 590 for i in range(40)]


def engine_logits(path: Path) -> NDArray[np.float64]:
    params = ContextParams(n_ctx=64, n_batch=64, max_rows=64, type_k="f32", type_v="f32", flash_attention=False)
    with open_model(path) as model, model.context(params) as context:
        return context.decode(TOKENS, 0, len(TOKENS)).astype(np.float64)


def assert_close(found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    """The engine rounds activations to F16: a few thousandths of the logits' spread, and no other greedy token.

    A position whose two best logits are closer than that may go either way.
    """
    tolerance = 0.05 * expected.std()
    assert np.abs(found - expected).max() < tolerance
    best = np.sort(expected, axis=1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > 2 * tolerance
    assert np.array_equal(found.argmax(axis=1)[clear], expected.argmax(axis=1)[clear])
    assert clear.mean() > 0.5


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_match_the_reference(tmp_path: Path, name: str) -> None:
    config, weights = write_checkpoint(tmp_path / "tiny", name)
    path = tmp_path / "tiny.gguf"
    assert write_base(plan_base(open_checkpoint(tmp_path / "tiny"), "F16", name="tiny"), path) == ()
    assert_close(engine_logits(path), forward(config, weights, TOKENS))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_tied_and_untied_in_every_stored_type(tmp_path: Path, tied: bool, dtype: str) -> None:
    """C3: no duplicate tensor, whatever the type; a head that a tied checkpoint stores again is dropped."""
    folder = tmp_path / "tiny"
    config, weights = write_checkpoint(folder, "qwen2", dtype=dtype, changes={"tie_word_embeddings": tied})
    path = tmp_path / "tiny.gguf"
    write_base(plan_base(open_checkpoint(folder), "F16", name="tiny"), path)
    names = [tensor.name for tensor in read_card(path).tensors]
    assert len(names) == len(set(names))
    assert ("output.weight" in names) == (not tied)
    assert_close(engine_logits(path), forward(config, weights, TOKENS))


def test_bf16_files_match_too(tmp_path: Path) -> None:
    config, weights = write_checkpoint(tmp_path / "tiny", "qwen3")
    plan = replace_float(plan_base(open_checkpoint(tmp_path / "tiny"), "F16", name="tiny"), "BF16")
    path = tmp_path / "tiny.gguf"
    write_base(plan, path)
    assert read_card(path).file_type == "BF16"
    assert "BF16" in read_card(path).weight_type_counts
    assert_close(engine_logits(path), forward(config, weights, TOKENS))


def test_gemma_3_inside_a_multimodal_checkpoint() -> None:
    """Text tensors carry a prefix, vision tensors are left behind, the sizes sit in text_config."""
    config = config_of("gemma3")
    weights = random_weights(config, 0)
    h = Hparams(config, find_architecture("Gemma3ForConditionalGeneration").defaults)
    plain = tensor_rules(find_architecture("Gemma3ForCausalLM"), h, list(weights))
    for prefix in ("language_model.model.", "model.language_model."):
        renamed = {name.replace("model.", prefix, 1): name for name in weights}
        vision = ["vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", "multi_modal_projector.mm_norm.weight"]
        rules = tensor_rules(find_architecture("Gemma3ForConditionalGeneration"), h, [*renamed, *vision])
        assert {renamed[name]: rule for name, rule in rules.items()} == plain


def test_an_unknown_architecture_is_named_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r"'FalconForCausalLM' is not .* knows Llama, Mistral .*Phi3ForCausalLM"):
        find_architecture("FalconForCausalLM")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "'hidden_size' should be a positive whole number and is None"),
        ({"num_hidden_layers": 10**12}, "'num_hidden_layers'"),
        ({"num_attention_heads": "4"}, "'num_attention_heads'"),
        ({"rms_norm_eps": float("nan")}, "'rms_norm_eps' should be a number"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope scaling 'dynamic' is unknown"),
        ({"rope_scaling": [1]}, "should be an object"),
    ],
)
def test_impossible_settings_are_named(change: dict[str, Any], said: str) -> None:
    h = Hparams({**config_of("llama"), **change})
    with pytest.raises(CheckpointError, match=said):
        metadata_fields(find_architecture("LlamaForCausalLM"), h)


@pytest.mark.parametrize("name", CONFIGS)
def test_missing_and_foreign_tensors_are_named(name: str) -> None:
    config = config_of(name)
    architecture = find_architecture(config["architectures"][0])
    h = Hparams(config, architecture.defaults)
    names = list(random_weights(config, 0))
    gone = next(each for each in names if each.startswith("model.layers.1.mlp"))
    with pytest.raises(CheckpointError, match=r"lacks blk\.1\.ffn"):
        tensor_rules(architecture, h, [each for each in names if each != gone])
    with pytest.raises(CheckpointError, match=r"has no place for model\.layers\.0\.strange\.weight"):
        tensor_rules(architecture, h, [*names, "model.layers.0.strange.weight"])
    with pytest.raises(CheckpointError, match=r"of 2 layers has no place for model\.layers\.2"):
        tensor_rules(architecture, Hparams({**config, "num_hidden_layers": 2}, architecture.defaults), names)


def test_rope_scaling_of_each_kind_is_written() -> None:
    llama = find_architecture("LlamaForCausalLM")
    linear = metadata_fields(llama, Hparams({**config_of("llama"), "rope_scaling": {"type": "linear", "factor": 4}}))
    assert (linear["llama.rope.scaling.type"], linear["llama.rope.scaling.factor"]) == ("linear", 4.0)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 32}
    fields = metadata_fields(llama, Hparams({**config_of("llama"), "rope_parameters": {**yarn, "rope_theta": 5e5}}))
    assert fields["llama.rope.scaling.original_context_length"] == 128
    assert fields["llama.rope.scaling.yarn_beta_fast"] == 32.0
    assert fields["llama.rope.freq_base"] == 5e5


def test_no_class_name_is_claimed_twice() -> None:
    names = [name for row in ARCHITECTURES for name in row.hf_names]
    assert len(names) == len(set(names))


def test_the_first_training_length_counts_wherever_it_stands_and_is_never_guessed() -> None:
    old = config_of("phi3")
    rope = {**old["rope_scaling"], "original_max_position_embeddings": old["original_max_position_embeddings"]}
    new = {k: v for k, v in old.items() if k not in ("rope_scaling", "original_max_position_embeddings")}
    phi3 = find_architecture("Phi3ForCausalLM")
    fields = metadata_fields(phi3, Hparams(old))
    assert metadata_fields(phi3, Hparams({**new, "rope_parameters": rope})) == fields
    assert fields["phi3.rope.scaling.attn_factor"] > 1
    del rope["original_max_position_embeddings"]
    with pytest.raises(CheckpointError, match="original_max_position_embeddings"):
        metadata_fields(phi3, Hparams({**new, "rope_parameters": rope}))
