"""Tiny random models of every kind of memory, as GGUF: gated delta nets with a next-token layer, short convolutions,
Mamba-2, sliding windows, experts. For tests and benches; sizes can be raised to those of a real model.

Takes a path, a kind and a few sizes, gives the path back. Tensor names and fields are those of the engine's
src/models/*.cpp. The vocabulary is `tiny.py`'s. Equal arguments give equal bytes. Knows nothing of real checkpoints.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from .tiny import CHAT_TEMPLATE, add_vocabulary, vocabulary

Array = npt.NDArray[np.float32]
Named = tuple[str, Array]

_LOGIT_STD = 4.0
_BLOCK_GAIN = 2.0
_D_CONV = 4
_N_EXPERT, _N_EXPERT_USED = 8, 2
_WINDOW = 32


@dataclass(frozen=True, slots=True)
class Sizes:
    """What sizes a tiny model. n_layer counts the trunk; every `attention_every`-th of a hybrid's layers attends.

    n_nextn: next-token layers behind the trunk (gated delta nets only). head_size: of attention and of states.
    """

    n_embd: int = 128
    n_layer: int = 4
    n_ff: int = 256
    n_head: int = 4
    n_head_kv: int = 2
    head_size: int = 32
    attention_every: int = 2
    n_nextn: int = 0
    n_vocab: int = 0
    n_ctx_train: int = 1024

    def attends(self, layer: int) -> bool:
        """Whether a layer of a hybrid attends."""
        return (layer + 1) % self.attention_every == 0


class _Random:
    """Named tensors from a seed, (rows, columns) as numpy sees them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def normal(self, name: str, shape: tuple[int, ...], std: float) -> Named:
        rng = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        return name, rng.normal(0.0, std, shape).astype(np.float32)

    def matrix(self, name: str, n_out: int, n_in: int, gain: float = 1.0) -> Named:
        return self.normal(f"{name}.weight", (n_out, n_in), gain * n_in**-0.5)


def _ones(name: str, n: int) -> Named:
    return f"{name}.weight", np.ones(n, dtype=np.float32)


def _attention(r: _Random, s: Sizes, block: str, *, gated: bool = False, normed: bool = True) -> Iterator[Named]:
    q, kv = s.n_head * s.head_size, s.n_head_kv * s.head_size
    yield r.matrix(f"{block}.attn_q", q * (2 if gated else 1), s.n_embd, _BLOCK_GAIN)
    yield r.matrix(f"{block}.attn_k", kv, s.n_embd, _BLOCK_GAIN)
    yield r.matrix(f"{block}.attn_v", kv, s.n_embd, _BLOCK_GAIN)
    yield r.matrix(f"{block}.attn_output", s.n_embd, q, _BLOCK_GAIN)
    if normed:
        yield _ones(f"{block}.attn_q_norm", s.head_size)
        yield _ones(f"{block}.attn_k_norm", s.head_size)


def _feed_forward(r: _Random, s: Sizes, block: str) -> Iterator[Named]:
    yield r.matrix(f"{block}.ffn_gate", s.n_ff, s.n_embd)
    yield r.matrix(f"{block}.ffn_up", s.n_ff, s.n_embd)
    yield r.matrix(f"{block}.ffn_down", s.n_embd, s.n_ff, _BLOCK_GAIN)


# -- gated delta net (qwen35.cpp): as many key heads as value heads, states of head_size x head_size -------------------


def _delta_tensors(r: _Random, s: Sizes) -> Iterator[Named]:
    width = s.n_head * s.head_size
    for layer in range(s.n_layer + s.n_nextn):
        block = f"blk.{layer}"
        yield _ones(f"{block}.attn_norm", s.n_embd)
        yield _ones(f"{block}.post_attention_norm", s.n_embd)
        yield from _feed_forward(r, s, block)
        if layer >= s.n_layer or s.attends(layer):
            yield from _attention(r, s, block, gated=True)
        else:
            yield r.matrix(f"{block}.attn_qkv", 3 * width, s.n_embd, _BLOCK_GAIN)
            yield r.matrix(f"{block}.attn_gate", width, s.n_embd)
            yield r.normal(f"{block}.ssm_conv1d.weight", (3 * width, _D_CONV), 0.5)
            yield r.normal(f"{block}.ssm_dt.bias", (s.n_head,), 0.5)
            yield f"{block}.ssm_a", -np.linspace(0.05, 0.5, s.n_head, dtype=np.float32)
            yield r.matrix(f"{block}.ssm_beta", s.n_head, s.n_embd)
            yield r.matrix(f"{block}.ssm_alpha", s.n_head, s.n_embd)
            yield _ones(f"{block}.ssm_norm", s.head_size)
            yield r.matrix(f"{block}.ssm_out", s.n_embd, width, _BLOCK_GAIN)
        if layer >= s.n_layer:
            yield r.matrix(f"{block}.nextn.eh_proj", s.n_embd, 2 * s.n_embd)
            yield _ones(f"{block}.nextn.enorm", s.n_embd)
            yield _ones(f"{block}.nextn.hnorm", s.n_embd)
            yield _ones(f"{block}.nextn.shared_head_norm", s.n_embd)


def _delta_fields(writer: gguf.GGUFWriter, s: Sizes) -> None:
    writer.add_uint32("qwen35.full_attention_interval", s.attention_every)
    writer.add_rope_dimension_sections([s.head_size // 4, s.head_size // 8, s.head_size // 8, 0])
    if s.n_nextn:
        writer.add_nextn_predict_layers(s.n_nextn)
    _ssm_fields(writer, inner=s.n_head * s.head_size, state=s.head_size, heads=s.n_head, groups=s.n_head)


def _ssm_fields(writer: gguf.GGUFWriter, *, inner: int, state: int, heads: int, groups: int) -> None:
    writer.add_ssm_conv_kernel(_D_CONV)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_group_count(groups)


# -- short convolutions (lfm2.cpp) ------------------------------------------------------------------------------------


def _short_conv_tensors(r: _Random, s: Sizes) -> Iterator[Named]:
    for layer in range(s.n_layer):
        block = f"blk.{layer}"
        yield _ones(f"{block}.attn_norm", s.n_embd)
        yield _ones(f"{block}.ffn_norm", s.n_embd)
        yield from _feed_forward(r, s, block)
        if s.attends(layer):
            yield from _attention(r, s, block)
        else:
            yield r.normal(f"{block}.shortconv.conv.weight", (s.n_embd, _D_CONV - 1), 0.7)
            yield r.matrix(f"{block}.shortconv.in_proj", 3 * s.n_embd, s.n_embd, _BLOCK_GAIN)
            yield r.matrix(f"{block}.shortconv.out_proj", s.n_embd, s.n_embd, _BLOCK_GAIN)


def _short_conv_fields(writer: gguf.GGUFWriter, s: Sizes) -> None:
    del s
    writer.add_shortconv_l_cache(_D_CONV - 1)


# -- Mamba-2 and attention (granite-hybrid.cpp) -----------------------------------------------------------------------


def _mamba2_tensors(r: _Random, s: Sizes) -> Iterator[Named]:
    inner, state, heads = 2 * s.n_embd, s.head_size, 2 * s.n_embd // s.head_size
    for layer in range(s.n_layer):
        block = f"blk.{layer}"
        yield _ones(f"{block}.attn_norm", s.n_embd)
        yield _ones(f"{block}.ffn_norm", s.n_embd)
        yield from _feed_forward(r, s, block)
        if s.attends(layer):
            yield from _attention(r, s, block, normed=False)
        else:
            yield r.matrix(f"{block}.ssm_in", 2 * inner + 2 * state + heads, s.n_embd, _BLOCK_GAIN)
            yield r.normal(f"{block}.ssm_conv1d.weight", (inner + 2 * state, _D_CONV), 0.5)
            yield r.normal(f"{block}.ssm_conv1d.bias", (inner + 2 * state,), 0.1)
            yield f"{block}.ssm_dt.bias", np.full(heads, -1.0, dtype=np.float32)
            yield f"{block}.ssm_a", -np.linspace(0.2, 2.0, heads, dtype=np.float32).reshape(heads, 1)
            yield f"{block}.ssm_d", np.ones((heads, 1), dtype=np.float32)
            yield f"{block}.ssm_norm.weight", np.ones((1, inner), dtype=np.float32)
            yield r.matrix(f"{block}.ssm_out", s.n_embd, inner, _BLOCK_GAIN)


def _mamba2_fields(writer: gguf.GGUFWriter, s: Sizes) -> None:
    inner = 2 * s.n_embd
    _ssm_fields(writer, inner=inner, state=s.head_size, heads=inner // s.head_size, groups=1)


# -- sliding windows (gemma3.cpp) -------------------------------------------------------------------------------------


def _window_tensors(r: _Random, s: Sizes) -> Iterator[Named]:
    for layer in range(s.n_layer):
        block = f"blk.{layer}"
        for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            yield _ones(f"{block}.{norm}", s.n_embd)
        yield from _attention(r, s, block)
        yield from _feed_forward(r, s, block)


def _window_fields(writer: gguf.GGUFWriter, s: Sizes) -> None:
    del s
    writer.add_sliding_window(_WINDOW)


# -- experts (qwen3moe.cpp) -------------------------------------------------------------------------------------------


def _expert_tensors(r: _Random, s: Sizes) -> Iterator[Named]:
    n_ff = s.n_ff // _N_EXPERT_USED
    for layer in range(s.n_layer):
        block = f"blk.{layer}"
        yield _ones(f"{block}.attn_norm", s.n_embd)
        yield _ones(f"{block}.ffn_norm", s.n_embd)
        yield from _attention(r, s, block)
        yield r.matrix(f"{block}.ffn_gate_inp", _N_EXPERT, s.n_embd, _BLOCK_GAIN)
        yield r.normal(f"{block}.ffn_gate_exps.weight", (_N_EXPERT, n_ff, s.n_embd), s.n_embd**-0.5)
        yield r.normal(f"{block}.ffn_up_exps.weight", (_N_EXPERT, n_ff, s.n_embd), s.n_embd**-0.5)
        yield r.normal(f"{block}.ffn_down_exps.weight", (_N_EXPERT, s.n_embd, n_ff), _BLOCK_GAIN * n_ff**-0.5)


def _expert_fields(writer: gguf.GGUFWriter, s: Sizes) -> None:
    writer.add_expert_count(_N_EXPERT)
    writer.add_expert_used_count(_N_EXPERT_USED)
    writer.add_expert_feed_forward_length(s.n_ff // _N_EXPERT_USED)


@dataclass(frozen=True, slots=True)
class _Kind:
    architecture: str
    tensors: Callable[[_Random, Sizes], Iterator[Named]]
    fields: Callable[[gguf.GGUFWriter, Sizes], None]
    output_norm: str = "output_norm"
    is_hybrid: bool = False


KINDS = {
    "delta": _Kind("qwen35", _delta_tensors, _delta_fields, is_hybrid=True),
    "short-conv": _Kind("lfm2", _short_conv_tensors, _short_conv_fields, "token_embd_norm", is_hybrid=True),
    "mamba2": _Kind("granitehybrid", _mamba2_tensors, _mamba2_fields, is_hybrid=True),
    "window": _Kind("gemma3", _window_tensors, _window_fields),
    "experts": _Kind("qwen3moe", _expert_tensors, _expert_fields),
}


def write_tiny_kind(
    path: Path,
    kind: str,
    *,
    sizes: Sizes | None = None,
    seed: int = 0,
    dtype: str = "F16",
    change: Callable[[str, Array], Array] = lambda _name, values: values,
) -> Path:
    """Writes one model and returns its path; an existing file is replaced at once, never half.

    change(name, values) sees each tensor, (rows, columns), before it is written.

    Raises UsageError for a kind or a type there is none of, or next-token layers where the kind has none.
    """
    made, s = KINDS.get(kind), sizes or Sizes()
    if made is None or dtype not in ("F16", "F32") or (s.n_nextn and kind != "delta"):
        raise UsageError(f"kind '{kind}', type {dtype}, {s.n_nextn} next-token layers: use one of {', '.join(KINDS)}")
    tokens, scores, token_kinds = vocabulary(max(0, s.n_vocab - len(vocabulary(0)[0])))
    s = replace(s, n_vocab=len(tokens))
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    writer = gguf.GGUFWriter(partial, made.architecture)
    try:
        _add_fields(writer, kind, made, s)
        add_vocabulary(writer, tokens, scores, token_kinds, CHAT_TEMPLATE)
        for name, random in _all_tensors(made, s, seed):
            values = change(name, random)
            is_product = values.ndim > 1 and "ssm_" not in name.replace("ssm_in", "").replace("ssm_out", "")
            is_half = dtype == "F16" and is_product and "shortconv.conv" not in name and "ffn_gate_inp" not in name
            writer.add_tensor(name, values.astype(np.float16) if is_half else values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.replace(path)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)
    return path


def _all_tensors(kind: _Kind, s: Sizes, seed: int) -> Iterator[Named]:
    r = _Random(seed)
    yield r.normal("token_embd.weight", (s.n_vocab, s.n_embd), _LOGIT_STD * s.n_embd**-0.5)
    yield _ones(kind.output_norm, s.n_embd)
    yield r.normal("output.weight", (s.n_vocab, s.n_embd), _LOGIT_STD * s.n_embd**-0.5)
    yield from kind.tensors(r, s)


def _add_fields(writer: gguf.GGUFWriter, name: str, kind: _Kind, s: Sizes) -> None:
    writer.add_name(f"tiny-{name}-{s.n_embd}")
    writer.add_context_length(s.n_ctx_train)
    writer.add_embedding_length(s.n_embd)
    writer.add_block_count(s.n_layer + s.n_nextn)
    writer.add_feed_forward_length(s.n_ff)
    writer.add_head_count(s.n_head)
    by_layer = [s.n_head_kv if s.attends(layer) else 0 for layer in range(s.n_layer)]
    writer.add_head_count_kv(by_layer if kind.architecture in ("lfm2", "granitehybrid") else s.n_head_kv)
    writer.add_key_length(s.head_size)
    writer.add_value_length(s.head_size)
    writer.add_rope_dimension_count(s.head_size)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(s.n_vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    kind.fields(writer, s)
