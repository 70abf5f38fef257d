"""A reference forward pass in numpy, written from the models' papers and transformers' own code, not from llama.cpp.

Takes config.json and tensors under their Hugging Face names, gives the logits of every position. Slow and plain: one
sequence, no cache, float64. Covers Llama, Mistral, Qwen2, Qwen3, Gemma 2, Gemma 3 and Phi-3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]


def forward(config: Mapping[str, Any], weights: Weights, tokens: list[int]) -> Array:
    """Logits, shape (n_tokens, n_vocab)."""
    model = _Model(config, {name: values.astype(np.float64) for name, values in weights.items()})
    return model.logits(tokens)


class _Model:
    def __init__(self, config: Mapping[str, Any], weights: dict[str, Array]) -> None:
        self.config = config
        self.weights = weights
        self.family = str(config["model_type"])
        self.is_gemma = self.family.startswith("gemma")
        self.n_embd = int(config["hidden_size"])
        self.n_head = int(config["num_attention_heads"])
        self.n_head_kv = int(config.get("num_key_value_heads", self.n_head))
        self.head_size = int(config.get("head_dim") or self.n_embd // self.n_head)
        self.eps = float(config["rms_norm_eps"])

    def logits(self, tokens: list[int]) -> Array:
        x = self.weights["model.embed_tokens.weight"][tokens]
        if self.is_gemma:
            x = x * math.sqrt(self.n_embd)
        for layer in range(int(self.config["num_hidden_layers"])):
            x = self.block(x, layer)
        x = self.norm(x, "model.norm")
        tied = self.config.get("tie_word_embeddings", self.is_gemma)
        head = self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
        return _softcap(x @ head.T, self.config.get("final_logit_softcapping"))

    def block(self, x: Array, layer: int) -> Array:
        prefix = f"model.layers.{layer}"
        attended = self.attention(self.norm(x, f"{prefix}.input_layernorm"), layer)
        if self.is_gemma:
            x = x + self.norm(attended, f"{prefix}.post_attention_layernorm")
            fed = self.feed_forward(self.norm(x, f"{prefix}.pre_feedforward_layernorm"), layer)
            return x + self.norm(fed, f"{prefix}.post_feedforward_layernorm")
        x = x + attended
        return x + self.feed_forward(self.norm(x, f"{prefix}.post_attention_layernorm"), layer)

    def norm(self, x: Array, name: str) -> Array:
        scale = self.weights[f"{name}.weight"] + (1.0 if self.is_gemma else 0.0)
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * scale

    def linear(self, x: Array, name: str) -> Array:
        y = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def attention(self, x: Array, layer: int) -> Array:
        prefix = f"model.layers.{layer}.self_attn"
        q, k, v = self.qkv(x, prefix)
        if f"{prefix}.q_norm.weight" in self.weights:
            q, k = self.norm(q, f"{prefix}.q_norm"), self.norm(k, f"{prefix}.k_norm")
        q, k = self.rotate(q, layer), self.rotate(k, layer)
        k, v = (np.repeat(each, self.n_head // self.n_head_kv, axis=1) for each in (k, v))
        scale = float(self.config.get("query_pre_attn_scalar") or self.head_size) ** -0.5
        scores = _softcap(np.einsum("ihd,jhd->hij", q, k) * scale, self.config.get("attn_logit_softcapping"))
        scores = np.where(self.mask(len(x), layer), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", shares, v).reshape(len(x), -1)
        return self.linear(mixed, f"{prefix}.o_proj")

    def qkv(self, x: Array, prefix: str) -> tuple[Array, Array, Array]:
        n_q, n_kv = self.n_head * self.head_size, self.n_head_kv * self.head_size
        if self.family == "phi3":
            q, k, v = np.split(self.linear(x, f"{prefix}.qkv_proj"), [n_q, n_q + n_kv], axis=-1)
        else:
            q, k, v = (self.linear(x, f"{prefix}.{part}_proj") for part in "qkv")
        shape = (len(x), -1, self.head_size)
        return q.reshape(shape), k.reshape(shape), v.reshape(shape)

    def is_sliding(self, layer: int) -> bool:
        if self.family == "gemma2":
            return layer % 2 == 0
        if self.family == "gemma3_text":
            return (layer + 1) % int(self.config["sliding_window_pattern"]) != 0
        return False

    def mask(self, n: int, layer: int) -> NDArray[np.bool_]:
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        allowed = j <= i
        return allowed & (i - j < int(self.config["sliding_window"])) if self.is_sliding(layer) else allowed

    def rotate(self, x: Array, layer: int) -> Array:
        """Rotary embedding over the two halves of each head, as transformers does it."""
        size = int(self.head_size * float(self.config.get("partial_rotary_factor", 1.0)))
        scaling = self.config.get("rope_scaling") or {}
        theta = float(self.config.get("rope_theta", 10_000.0))
        factor = 1.0
        if self.family == "gemma3_text" and self.is_sliding(layer):
            theta, scaling = float(self.config["rope_local_base_freq"]), {}
        frequencies = theta ** -(np.arange(0, size, 2) / size)
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind == "linear":
            frequencies = frequencies / scaling["factor"]
        elif kind == "llama3":
            frequencies = _llama3(frequencies, scaling)
        elif kind == "longrope":
            original = int(self.config["original_max_position_embeddings"])
            frequencies = frequencies / np.asarray(scaling["short_factor"])
            stretch = int(self.config["max_position_embeddings"]) / original
            factor = math.sqrt(1 + math.log(stretch) / math.log(original))
        angles = np.arange(len(x))[:, None] * frequencies
        cos, sin = np.cos(angles)[:, None, :] * factor, np.sin(angles)[:, None, :] * factor
        first, second, rest = x[..., : size // 2], x[..., size // 2 : size], x[..., size:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)

    def feed_forward(self, x: Array, layer: int) -> Array:
        prefix = f"model.layers.{layer}.mlp"
        if self.family == "phi3":
            gate, up = np.split(self.linear(x, f"{prefix}.gate_up_proj"), 2, axis=-1)
        else:
            gate, up = self.linear(x, f"{prefix}.gate_proj"), self.linear(x, f"{prefix}.up_proj")
        return self.linear((_gelu_tanh(gate) if self.is_gemma else _silu(gate)) * up, f"{prefix}.down_proj")


def _llama3(frequencies: Array, scaling: Mapping[str, Any]) -> Array:
    """Section 3 of the Llama 3.1 release: slow frequencies divided, fast ones kept, a ramp between."""
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    turns = original * frequencies / (2 * math.pi)
    ramp = (turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
    ramp = np.clip(ramp, 0.0, 1.0)
    return frequencies * (ramp + (1 - ramp) / factor)


def _softcap(x: Array, cap: float | None) -> Array:
    return x if cap is None else cap * np.tanh(x / cap)


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
