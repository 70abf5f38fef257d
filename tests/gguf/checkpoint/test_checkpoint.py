"""Checkpoint folders: the index decides, damage and foreign formats are named before a tensor is read (C1, C9)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_checkpoints import write_checkpoint, write_safetensors, write_weights

from edge_specquant.errors import CheckpointError
from edge_specquant.gguf.checkpoint.base import plan_base, write_base
from edge_specquant.gguf.checkpoint.checkpoint import INDEX_NAME, open_checkpoint
from edge_specquant.gguf.checkpoint.safetensors_file import read_safetensors
from edge_specquant.gguf.format.weight_types import BY_NAME


def test_shards_and_a_single_file_hold_the_same(tmp_path: Path) -> None:
    _, weights = write_checkpoint(tmp_path / "one", "qwen2", dtype="F32")
    write_checkpoint(tmp_path / "three", "qwen2", dtype="F32", n_shards=3)
    for folder in ("one", "three"):
        checkpoint = open_checkpoint(tmp_path / folder)
        assert set(checkpoint.tensors) == set(weights)
        for name, tensor in checkpoint.tensors.items():
            assert np.array_equal(tensor.read_rows(0, tensor.n_rows), weights[name])
            assert np.array_equal(tensor.read_rows(1, 3), weights[name][1:3])


def test_files_of_the_safetensors_library_are_read_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(7, 5)).astype(np.float32),
        "b": rng.normal(size=(3,)).astype(np.float16),
        "c": rng.normal(size=(2, 3, 4)),
    }
    save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "np"})
    tensors = read_safetensors(tmp_path / "x.safetensors")
    assert set(tensors) == set(arrays)
    for name, values in arrays.items():
        assert np.array_equal(tensors[name].read_rows(0, len(values)), values.astype(np.float32))


def test_a_stray_file_beside_the_index_is_ignored(tmp_path: Path) -> None:
    _, weights = write_checkpoint(tmp_path, "qwen2", n_shards=2)
    write_safetensors(tmp_path / "consolidated.safetensors", {"wrong": np.zeros((4, 4), np.float32)}, "F32")
    checkpoint = open_checkpoint(tmp_path)
    assert set(checkpoint.tensors) == set(weights)
    assert "consolidated.safetensors" not in [path.name for path in checkpoint.files]


def test_a_missing_shard_and_an_absent_tensor_are_listed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "qwen2", n_shards=3)
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    index["weight_map"]["model.ghost.weight"] = "model-00001-of-00003.safetensors"
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"no shard has: model\.ghost\.weight"):
        open_checkpoint(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-00002-of-00003\.safetensors"):
        open_checkpoint(tmp_path)
    (tmp_path / INDEX_NAME).unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-00002-of-00003\.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "a\\b.safetensors", "", "weights.bin"])
def test_an_index_cannot_point_elsewhere(tmp_path: Path, shard: str) -> None:
    write_checkpoint(tmp_path, "qwen2", n_shards=2)
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    index["weight_map"]["model.norm.weight"] = shard
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="no plain safetensors file name"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "already quantized .gptq, 4 bits."),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "already quantized .awq, 4 bits."),
        ({"quantization_config": {"load_in_4bit": True}}, "already quantized .bitsandbytes, 4 bits."),
        ({"quantization_config": {"quant_method": "fp8"}}, "already quantized .fp8."),
        ({"text_config": {"quantization_config": {"quant_method": "mxfp4"}}}, "already quantized .mxfp4."),
    ],
)
def test_quantized_checkpoints_are_refused_before_tensors_are_read(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **settings}))
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(tmp_path)


def test_other_signs_of_quantization(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", "qwen2")
    (tmp_path / "a" / "quantize_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"already quantized \(it has a quantize_config.json\)"):
        open_checkpoint(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "b" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    with pytest.raises(CheckpointError, match=r"already quantized .'w' is F8_E4M3"):
        open_checkpoint(tmp_path / "b")


def test_pickle_is_refused_with_the_reason_and_never_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/opened'\ntR.")
    with pytest.raises(CheckpointError, match=r"pickle.*can run any program"):
        open_checkpoint(tmp_path)


def test_folders_without_weights_say_what_they_hold(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        open_checkpoint(tmp_path)
    (tmp_path / "model-q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"GGUF files \(model-q4\.gguf\)"):
        open_checkpoint(tmp_path)
    for text in ("[]", "{", "\xff"):
        (tmp_path / "config.json").write_text(text, encoding="latin-1")
        with pytest.raises(CheckpointError, match=r"config\.json"):
            open_checkpoint(tmp_path)


def safetensors(header: object, data: bytes = b"\0" * 64) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


F32_4 = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a safetensors file"),
        (b"<!DOCTYPE html>" + b" " * 100, "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n" + b" " * 50, "Git LFS"),
        (b"PK\x03\x04" + b"\0" * 100, "PyTorch"),
        (struct.pack("<Q", 1 << 60) + b"{" + b" " * 100, "needs"),
        (struct.pack("<Q", 20) + b"{not json............", "damaged header"),
        (safetensors([1, 2]), "no table of tensors"),
        (safetensors({"a": 7}), "damaged header .tensor 'a'"),
        (safetensors({"a": {**F32_4, "shape": [-4]}}), "damaged header"),
        (safetensors({"a": {**F32_4, "shape": [1 << 61]}}), "claims 16 bytes"),
        (safetensors({"a": {**F32_4, "data_offsets": [16, 0]}}), "claims -16 bytes"),
        (safetensors({"a": {**F32_4, "shape": [64], "data_offsets": [0, 256]}}), "is not whole: the file is"),
        (safetensors({"a": F32_4, "b": {**F32_4, "data_offsets": [8, 24]}}), "'a' and 'b' overlap"),
    ],
)
def test_hostile_safetensors_are_errors_not_memory(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_safetensors(path)


def test_a_bf16_value_beyond_f16_is_kept_and_never_infinite(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    _, weights = write_checkpoint(folder, "qwen2")
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] = 99_840.0
    write_weights(folder, weights, "BF16")
    path = tmp_path / "tiny.gguf"
    (note,) = write_base(plan_base(open_checkpoint(folder), "F16", name="tiny"), path)
    assert "'blk.1.ffn_down.weight' holds 9.98e+04" in note
    tensors = read_gguf_tensors(path)
    assert all(np.isfinite(values).all() for _, values in tensors.values())
    kind, values = tensors["blk.1.ffn_down.weight"]
    assert kind == "BF16"
    assert np.array_equal(values, weights["model.layers.1.mlp.down_proj.weight"])
    assert tensors["blk.0.ffn_down.weight"][0] == "F16"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_no_numbers_are_refused_by_name(tmp_path: Path, bad: float) -> None:
    folder = tmp_path / "tiny"
    _, weights = write_checkpoint(folder, "qwen2", dtype="F32")
    weights["model.layers.2.input_layernorm.weight"][0] = bad
    write_weights(folder, weights, "F32")
    with pytest.raises(CheckpointError, match=r"'model\.layers\.2\.input_layernorm\.weight' holds values that are not"):
        write_base(plan_base(open_checkpoint(folder), "F16", name="tiny"), tmp_path / "tiny.gguf")


def test_shapes_that_contradict_the_config_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    _, weights = write_checkpoint(folder, "qwen2")
    weights["model.layers.0.self_attn.k_proj.weight"] = weights["model.layers.0.self_attn.q_proj.weight"]
    write_weights(folder, weights, "BF16")
    with pytest.raises(CheckpointError, match=r"k_proj\.weight' has shape \[128, 128\], config\.json says \[64, 128\]"):
        plan_base(open_checkpoint(folder), "F16", name="tiny")


def test_slices_give_the_same_file_as_whole_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edge_specquant.gguf.checkpoint import base

    write_checkpoint(tmp_path / "tiny", "gemma2", n_shards=2)
    plan = plan_base(open_checkpoint(tmp_path / "tiny"), "F16", name="tiny")
    write_base(plan, tmp_path / "whole.gguf")
    monkeypatch.setattr(base, "_SLICE_WEIGHTS", 1000)
    write_base(plan, tmp_path / "sliced.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "sliced.gguf").read_bytes()
    assert (tmp_path / "whole.gguf").stat().st_size == plan.n_bytes


def read_gguf_tensors(path: Path) -> dict[str, tuple[str, np.ndarray[Any, Any]]]:
    import gguf

    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        found[tensor.name] = (tensor.tensor_type.name, values)
        assert tensor.n_bytes == BY_NAME[tensor.tensor_type.name].n_bytes(values.size)
    return found


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
@pytest.mark.parametrize("alone", [False, True])
def test_an_adapter_is_refused_beside_its_base_and_alone(tmp_path: Path, name: str, alone: bool) -> None:
    if not alone:
        write_checkpoint(tmp_path, "llama")
    (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match=rf"holds a LoRA adapter \({name}\).*merge it into its base first"):
        open_checkpoint(tmp_path)
