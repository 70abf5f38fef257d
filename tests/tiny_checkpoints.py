"""Writes tiny random Hugging Face checkpoints: config, tokenizer, safetensors (sharded or not), one an architecture.

Weights are rounded to what the stored type holds, so that a reference can compute with the very same numbers.
"""

from __future__ import annotations

import functools
import io
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from edge_specquant.gguf.quantize.collect import shipped_text

Weights = dict[str, NDArray[np.float32]]

QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_PATTERN = QWEN2_PATTERN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_N_EMBD, _N_FF, _N_ROWS = 128, 256, 640

_COMMON = {
    "hidden_size": _N_EMBD,
    "intermediate_size": _N_FF,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": _N_ROWS,
    "max_position_embeddings": 512,
    "rope_theta": 10_000.0,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": False},
    "llama3": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "head_dim": 64,
        "sliding_window": None,
    },
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 64,
        "tie_word_embeddings": False,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "sliding_window": 8,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "sliding_window": 8,
        "sliding_window_pattern": 3,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "phi3": {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "tie_word_embeddings": False,
        "sliding_window": None,
        "original_max_position_embeddings": 256,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0 + i / 16 for i in range(16)],
            "long_factor": [2.0 + i / 8 for i in range(16)],
        },
    },
}


def config_of(name: str) -> dict[str, Any]:
    return {**_COMMON, **CONFIGS[name]}


def write_checkpoint(
    folder: Path,
    name: str,
    *,
    dtype: str = "BF16",
    n_shards: int = 1,
    seed: int = 0,
    tokenizer: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Weights]:
    """Writes one checkpoint; returns its config and the weights as stored. `tokenizer` is qwen2, llama3 or spm."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**config_of(name), **(changes or {})}
    weights = {key: rounded(values, dtype) for key, values in random_weights(config, seed).items()}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, tokenizer or ("spm" if name in ("llama", "mistral", "gemma2", "gemma3", "phi3") else name))
    write_weights(folder, weights, dtype, n_shards)
    return config, weights


def random_weights(config: Mapping[str, Any], seed: int) -> Weights:
    """All tensors of the architecture, under their Hugging Face names."""
    rng = np.random.default_rng(seed)
    n_embd, n_ff = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim") or n_embd // config["num_attention_heads"]
    n_q, n_kv = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    family, weights = config["model_type"], Weights()
    is_gemma = family.startswith("gemma")

    def matrix(name: str, n_out: int, n_in: int, gain: float = 1.0) -> None:
        weights[f"{name}.weight"] = rng.normal(0, gain * n_in**-0.5, (n_out, n_in)).astype(np.float32)

    def norm(name: str, n: int = n_embd) -> None:
        weights[f"{name}.weight"] = rng.normal(0.0 if is_gemma else 1.0, 0.1, n).astype(np.float32)

    matrix("model.embed_tokens", config["vocab_size"], n_embd, 2.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        norm(f"{prefix}.input_layernorm")
        norm(f"{prefix}.post_attention_layernorm")
        if is_gemma:
            norm(f"{prefix}.pre_feedforward_layernorm")
            norm(f"{prefix}.post_feedforward_layernorm")
        if family == "phi3":
            matrix(f"{prefix}.self_attn.qkv_proj", n_q + 2 * n_kv, n_embd, 2.0)
            matrix(f"{prefix}.mlp.gate_up_proj", 2 * n_ff, n_embd)
        else:
            for part, n_out in (("q", n_q), ("k", n_kv), ("v", n_kv)):
                matrix(f"{prefix}.self_attn.{part}_proj", n_out, n_embd, 2.0)
                if family == "qwen2":
                    bias = rng.normal(0, 0.5, n_out).astype(np.float32)
                    weights[f"{prefix}.self_attn.{part}_proj.bias"] = bias
            matrix(f"{prefix}.mlp.gate_proj", n_ff, n_embd)
            matrix(f"{prefix}.mlp.up_proj", n_ff, n_embd)
        if family in ("qwen3", "gemma3_text"):
            norm(f"{prefix}.self_attn.q_norm", size)
            norm(f"{prefix}.self_attn.k_norm", size)
        matrix(f"{prefix}.self_attn.o_proj", n_embd, n_q, 2.0)
        matrix(f"{prefix}.mlp.down_proj", n_embd, n_ff, 2.0)
    norm("model.norm")
    if not config.get("tie_word_embeddings", is_gemma):
        matrix("lm_head", config["vocab_size"], n_embd, 4.0)
    return weights


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[np.float32]:
    if dtype == "F32":
        return values
    if dtype == "F16":
        return values.astype(np.float16).astype(np.float32)
    return (np.ascontiguousarray(values).view(np.uint32) & 0xFFFF0000).view(np.float32)


def write_weights(folder: Path, weights: Weights, dtype: str, n_shards: int = 1) -> None:
    """safetensors, in one file or in shards with an index."""
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", weights, dtype)
        return
    names, weight_map = list(weights), {}
    for number in range(n_shards):
        shard = f"model-{number + 1:05d}-of-{n_shards:05d}.safetensors"
        part = names[number::n_shards]
        write_safetensors(folder / shard, {name: weights[name] for name in part}, dtype)
        weight_map |= dict.fromkeys(part, shard)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_safetensors(path: Path, weights: Weights, dtype: str) -> None:
    header, data = {}, io.BytesIO()
    for name, values in weights.items():
        begin = data.tell()
        data.write(_stored(values, dtype))
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [begin, data.tell()]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data.getvalue())


def _stored(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "BF16":
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2").tobytes()
    return values.astype("<f4" if dtype == "F32" else "<f2").tobytes()


def write_tokenizer(folder: Path, kind: str) -> None:
    if kind == "spm":
        (folder / "tokenizer.model").write_bytes(sentencepiece_model())
        settings: dict[str, Any] = {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "add_bos_token": True,
        }
        settings["added_tokens_decoder"] = {
            "600": {"content": "<|endoftext|>", "special": True},
            "601": {"content": "<|end|>", "special": True},
            "602": {"content": "<note>", "special": False},
        }
    else:
        byte_level_tokenizer(kind).save(str(folder / "tokenizer.json"))
        settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHAT_TEMPLATE}
        if kind == "llama3":
            settings["bos_token"] = "<|endoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@functools.cache
def sentencepiece_model() -> bytes:
    """BPE with byte fallback, as Llama 2 and Gemma have it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(shipped_text("calibration").splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        minloglevel=2,
    )
    return model.getvalue()


def sentencepiece_as_json(*, prefix: bool) -> Tokenizer:
    """The same SentencePiece model as tokenizer.json, the way transformers saves Llama 2 and Gemma."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    pieces = {processor.IdToPiece(i): i for i in range(processor.GetPieceSize())}
    scores = {piece: processor.GetScore(i) for piece, i in pieces.items()}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(pieces, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces and not piece.startswith("<")
    ]
    tokenizer = Tokenizer(models.BPE(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.ByteFallback()
    return tokenizer


def byte_level_tokenizer(kind: str) -> Tokenizer:
    """Byte-level BPE with the pre-tokenizer of Qwen2 or Llama 3."""
    return Tokenizer.from_str(_byte_level_json("llama3" if kind == "llama3" else "qwen2"))


@functools.cache
def _byte_level_json(kind: str) -> str:
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    pattern = LLAMA3_PATTERN if kind == "llama3" else QWEN2_PATTERN
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(shipped_text("calibration").splitlines(), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIALS])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    if kind == "llama3":
        bos = tokenizer.token_to_id("<|endoftext|>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", bos)]
        )
    return str(tokenizer.to_str())
