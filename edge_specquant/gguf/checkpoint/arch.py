"""Architectures, one table: what a checkpoint is called, how its tensors and numbers become GGUF.

Takes a configuration and tensor names, gives metadata fields, GGUF names and the few changes llama.cpp wants (permuted
q and k, shifted norms, extra rope tensors). Reads no weights. Names come from gguf's own tensor map.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CheckpointError

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hparams:
    """config.json with defaults behind it. A missing or impossible number is a CheckpointError that names it."""

    config: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        value = self.config.get(key)
        return self.defaults.get(key) if value is None else value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
            raise CheckpointError(f"config.json: '{key}' should be a positive whole number and is {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise CheckpointError(f"config.json: '{key}' should be a number and is {value!r}")
        return float(value)

    @property
    def n_layer(self) -> int:
        return self.integer("num_hidden_layers")

    @property
    def n_embd(self) -> int:
        return self.integer("hidden_size")

    @property
    def n_head(self) -> int:
        return self.integer("num_attention_heads")

    @property
    def n_head_kv(self) -> int:
        return self.integer("num_key_value_heads", self.n_head)

    @property
    def head_size(self) -> int:
        return self.integer("head_dim", self.n_embd // self.n_head)

    @property
    def rope(self) -> dict[str, Any]:
        """The rope settings of full-attention layers, whichever of the three spellings the checkpoint uses."""
        found = self.get("rope_parameters") or self.get("rope_scaling") or {}
        if not isinstance(found, dict):
            raise CheckpointError(f"config.json: the rope settings should be an object and are {found!r}")
        found = {**found, **found.get("full_attention", {})} if "full_attention" in found else found
        kind = found.get("rope_type", found.get("type", "default"))
        return {**found, "rope_type": str(kind or "default").lower()}

    @property
    def rope_theta(self) -> float:
        theta = self.rope.get("rope_theta")
        return self.number("rope_theta", 10_000.0) if theta is None else float(theta)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row. `extra_fields` adds what the common fields lack; `extra_tensors` are computed, not read."""

    gguf_name: str
    label: str
    hf_names: tuple[str, ...]
    permutes_qk: bool = False
    norm_shift: float = 0.0
    has_own_head: bool = True
    tied_by_default: bool = False
    writes_space_prefix: bool | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    extra_fields: Callable[[Hparams], Fields] = lambda _: {}
    extra_tensors: Callable[[Hparams], dict[str, NDArray[np.float32]]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class TensorRule:
    """What becomes of one checkpoint tensor. `permute_heads` 0: rows stay where they are."""

    gguf_name: str
    permute_heads: int = 0
    shift: float = 0.0


# -- fields -------------------------------------------------------------------------------------------------------


def _rope_scaling_fields(h: Hparams) -> Fields:
    rope = h.rope
    kind = rope["rope_type"]
    if kind in ("default", "llama3", "su", "longrope", "none"):
        return {}
    if kind not in ("linear", "yarn"):
        raise CheckpointError(f"config.json: rope scaling '{kind}' is unknown; known: linear, yarn, llama3, longrope")
    fields: Fields = {"rope.scaling.type": kind, "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn":
        original = rope.get("original_max_position_embeddings") or h.integer("max_position_embeddings")
        fields["rope.scaling.original_context_length"] = int(original)
        for key, name in _YARN_FIELDS.items():
            if rope.get(key) is not None:
                fields[name] = float(rope[key])
    return fields


_YARN_FIELDS = {
    "attention_factor": "rope.scaling.yarn_attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}


def common_fields(h: Hparams) -> Fields:
    """Metadata every architecture has, keys without the architecture's prefix."""
    return {
        "block_count": h.n_layer,
        "context_length": h.integer("max_position_embeddings"),
        "embedding_length": h.n_embd,
        "feed_forward_length": h.integer("intermediate_size"),
        "attention.head_count": h.n_head,
        "attention.head_count_kv": h.n_head_kv,
        "attention.layer_norm_rms_epsilon": h.number("rms_norm_eps", 1e-6),
        "attention.key_length": h.head_size,
        "attention.value_length": h.head_size,
        "rope.dimension_count": h.head_size,
        "rope.freq_base": h.rope_theta,
        **_rope_scaling_fields(h),
    }


def _softcap_fields(h: Hparams) -> Fields:
    caps = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
    return {name: h.number(key) for key, name in caps.items() if h.get(key) is not None}


_LAYERS_OF_27B = (46, 62)  # Gemma 2 and Gemma 3


def _require_plain_attention_scale(h: Hparams) -> None:
    """llama.cpp scales by the head size (by n_embd / n_head in the 27B models); another scale has no field."""
    scalar, fixed = h.get("query_pre_attn_scalar"), h.head_size
    if h.n_layer in _LAYERS_OF_27B:
        fixed = h.n_embd // h.n_head
    if scalar is not None and scalar != fixed:
        raise CheckpointError(f"config.json: query_pre_attn_scalar is {scalar}, llama.cpp would use {fixed}")


def _gemma2_fields(h: Hparams) -> Fields:
    _require_plain_attention_scale(h)
    return {**_softcap_fields(h), "attention.sliding_window": h.integer("sliding_window", 4096)}


def _gemma3_fields(h: Hparams) -> Fields:
    _require_plain_attention_scale(h)
    if h.get("attn_logit_softcapping") is not None:
        raise CheckpointError("config.json: attn_logit_softcapping is not part of Gemma 3 as llama.cpp runs it")
    parameters = h.get("rope_parameters") or {}
    local = parameters.get("sliding_attention", {}).get("rope_theta") or h.get("rope_local_base_freq") or 10_000.0
    fields: Fields = {**_softcap_fields(h), "rope.freq_base_swa": float(local)}
    pattern = _sliding_pattern(h)
    if any(pattern):
        fields["attention.sliding_window"] = h.integer("sliding_window", 4096)
        fields["attention.sliding_window_pattern"] = pattern
    return fields


def _sliding_pattern(h: Hparams) -> list[bool]:
    """True for layers with sliding-window attention."""
    layer_types = h.get("layer_types")
    if isinstance(layer_types, list) and len(layer_types) == h.n_layer:
        return [kind == "sliding_attention" for kind in layer_types]
    every = h.integer("sliding_window_pattern", 6)
    return [(layer + 1) % every != 0 for layer in range(h.n_layer)]


def _phi3_rope_size(h: Hparams) -> int:
    share = h.number("partial_rotary_factor", float(h.rope.get("partial_rotary_factor") or 1.0))
    return int(share * h.n_embd) // h.n_head


def _phi3_original_length(h: Hparams) -> int:
    """Context of the first training, beside the rope settings or (newer files) in them; long rope cannot do without."""
    moved = h.rope.get("original_max_position_embeddings")
    key = "original_max_position_embeddings"
    if moved is not None and h.get(key) is None:
        return Hparams({key: moved}).integer(key)
    return h.integer(key, None if h.rope.get("long_factor") else h.integer("max_position_embeddings"))


def _phi3_fields(h: Hparams) -> Fields:
    original = _phi3_original_length(h)
    fields: Fields = {
        "rope.dimension_count": _phi3_rope_size(h),
        "rope.scaling.original_context_length": original,
        # Zero tells llama.cpp that this is Phi-4 (no window); it ignores the window of Phi-3 and says so.
        "attention.sliding_window": h.get("sliding_window") or 0,
    }
    if h.rope.get("long_factor"):
        scale = h.integer("max_position_embeddings") / original
        log_factor = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
        fields["rope.scaling.attn_factor"] = log_factor
    return fields


# -- computed tensors ---------------------------------------------------------------------------------------------


def _llama3_rope_factors(h: Hparams) -> dict[str, NDArray[np.float32]]:
    """Per-frequency divisors of Llama 3.1's rope; `_compute_llama3_parameters` of transformers does the same."""
    rope = h.rope
    if rope["rope_type"] != "llama3":
        return {}
    size = h.head_size
    wavelengths = 2 * math.pi * h.rope_theta ** (np.arange(0, size, 2, dtype=np.float64) / size)
    factor = float(rope.get("factor", 8.0))
    low, high = float(rope.get("low_freq_factor", 1.0)), float(rope.get("high_freq_factor", 4.0))
    original = float(rope.get("original_max_position_embeddings", 8192))
    smooth = (original / wavelengths - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(wavelengths > original / low, factor, np.where(wavelengths < original / high, 1.0, between))
    return {"rope_freqs.weight": factors.astype(np.float32)}


def _phi3_rope_factors(h: Hparams) -> dict[str, NDArray[np.float32]]:
    rope = h.rope
    if not rope.get("long_factor"):
        return {}
    tensors = {}
    for key, name in (("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")):
        factors = np.asarray(rope.get(key) or [], dtype=np.float32)
        if factors.size != _phi3_rope_size(h) // 2:
            n_frequencies = _phi3_rope_size(h) // 2
            raise CheckpointError(f"config.json: {key} has {factors.size} entries for {n_frequencies} frequencies")
        tensors[name] = factors
    return tensors


# -- the table ----------------------------------------------------------------------------------------------------

_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
}

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture(
        "llama",
        "Llama, Mistral",
        ("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM"),
        permutes_qk=True,
        extra_tensors=_llama3_rope_factors,
    ),
    Architecture("qwen2", "Qwen2, Qwen2.5", ("Qwen2ForCausalLM",)),
    Architecture("qwen3", "Qwen3", ("Qwen3ForCausalLM",)),
    Architecture(
        "gemma2",
        "Gemma 2",
        ("Gemma2ForCausalLM",),
        norm_shift=1.0,
        has_own_head=False,
        tied_by_default=True,
        writes_space_prefix=False,
        defaults={"head_dim": 256, "max_position_embeddings": 8192},
        extra_fields=_gemma2_fields,
    ),
    Architecture(
        "gemma3",
        "Gemma 3 (text)",
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        norm_shift=1.0,
        tied_by_default=True,
        writes_space_prefix=False,
        defaults=_GEMMA3_DEFAULTS,
        extra_fields=_gemma3_fields,
    ),
    Architecture(
        "phi3", "Phi-3, Phi-4 mini", ("Phi3ForCausalLM",), extra_fields=_phi3_fields, extra_tensors=_phi3_rope_factors
    ),
)

_SKIPPED = re.compile(
    r"rotary_emb\.inv_freq|attention\.(masked_)?bias$|vision_tower\.|vision_model\.|multi_modal_projector\."
)
_LANGUAGE_PREFIX = re.compile(r"^(model\.)?language_model\.(model\.)?")


def find_architecture(hf_name: str) -> Architecture:
    """Raises CheckpointError with the list of known ones."""
    for architecture in ARCHITECTURES:
        if hf_name in architecture.hf_names:
            return architecture
    known = "; ".join(f"{row.label} ({', '.join(row.hf_names)})" for row in ARCHITECTURES)
    raise CheckpointError(f"'{hf_name}' is not an architecture this converter knows; it knows {known}")


def metadata_fields(architecture: Architecture, h: Hparams) -> Fields:
    """All metadata of the architecture, keys complete."""
    fields = {**common_fields(h), **architecture.extra_fields(h)}
    return {f"{architecture.gguf_name}.{key}": value for key, value in fields.items()}


def architecture_notes(architecture: Architecture, h: Hparams) -> tuple[str, ...]:
    """What llama.cpp will do otherwise than the checkpoint says."""
    window = h.get("sliding_window")
    uses_window = h.get("use_sliding_window") is not False and architecture.gguf_name in ("llama", "qwen2", "qwen3")
    if uses_window and isinstance(window, int) and window < h.integer("max_position_embeddings"):
        return (f"llama.cpp ignores this model's sliding window: beyond {window} tokens it attends to everything",)
    return ()


def tensor_rules(architecture: Architecture, h: Hparams, names: list[str]) -> dict[str, TensorRule]:
    """Checkpoint tensor name -> rule, without the tensors llama.cpp has no use for.

    Raises CheckpointError naming tensors that have no place in the architecture, or that it lacks.
    """
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

    arch_enum = next(key for key in MODEL_ARCH if MODEL_ARCH_NAMES[key] == architecture.gguf_name)
    name_map = get_tensor_name_map(arch_enum, h.n_layer)
    tied = bool(architecture.tied_by_default if h.get("tie_word_embeddings") is None else h.get("tie_word_embeddings"))
    rules, unknown = {}, []
    for name in names:
        if _SKIPPED.search(name):
            continue
        plain = _LANGUAGE_PREFIX.sub("model." if "lm_head" not in name else "", name)
        mapped = name_map.get_name(plain, try_suffixes=(".weight", ".bias"))
        if mapped is None:
            unknown.append(name)
        elif mapped != "output.weight" or (architecture.has_own_head and not tied):
            rules[name] = _rule(architecture, h, mapped)
    if unknown:
        raise CheckpointError(
            f"{architecture.label} of {h.n_layer} layers has no place for {', '.join(sorted(unknown)[:5])}"
        )
    _require_whole(architecture, h, {rule.gguf_name for rule in rules.values()}, tied)
    return rules


def _rule(architecture: Architecture, h: Hparams, mapped: str) -> TensorRule:
    heads = 0
    if architecture.permutes_qk:
        heads = h.n_head if ".attn_q." in mapped else h.n_head_kv if ".attn_k." in mapped else 0
    is_norm = "_norm." in mapped
    return TensorRule(mapped, permute_heads=heads, shift=architecture.norm_shift if is_norm else 0.0)


def _require_whole(architecture: Architecture, h: Hparams, names: set[str], tied: bool) -> None:
    """Every layer must have what some layer has, and the ends of the stack must be there."""
    parts = {name.split(".", 2)[2] for name in names if name.startswith("blk.")}
    wanted = {f"blk.{layer}.{part}" for layer in range(h.n_layer) for part in parts}
    wanted |= {"token_embd.weight", "output_norm.weight"}
    wanted |= {f"blk.0.{part}.weight" for part in ("attn_norm", "attn_output", "ffn_norm", "ffn_up", "ffn_down")}
    if architecture.has_own_head and not tied:
        wanted.add("output.weight")
    missing = sorted(wanted - names)
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise CheckpointError(f"the checkpoint lacks {', '.join(missing[:5])}{more} ({architecture.label}, GGUF names)")
