"""What each layer of a model keeps of the text: cells of attention, a recurrent state, or nothing of its own.

Takes the sizes under an architecture's prefix, gives bytes and flags by layer. The formulas are the engine's
(llama-hparams.cpp: n_embd_r, n_embd_s; which layers are recurrent: src/models/*.cpp). Knows nothing of contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_STATE_ITEM = 4  # states are 32-bit floats
_BOTH = frozenset({"falcon-h1"})  # each layer attends and keeps a state
_BY_INTERVAL = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_USUAL_INTERVAL = 4
_N_AT_ONCE, _N_AT_ONCE_DELTA = 3.5, 2.25  # copies of a state-space layer's channels alive at once
# llm_arch_supports_rs_rollback: the engine can keep copies of the states and go back to them.
ROLLS_BACK = frozenset(
    {"kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h", "nemotron_h_moe"}
    | {"lfm2", "lfm2moe", "bailingmoe3"}
)

Size = Callable[[str], int]
"""A size by its key; 0 where the header is silent."""


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """By layer, next-token layers included: whether it attends, bytes of its state (0 is none).

    n_nextn: next-token layers at the end, which only a context of their own uses. n_wide: numbers a token that a
    recurrent layer of the state-space kind has at hand at once, 0 where there is none (as observed with the engine).
    """

    attends: tuple[bool, ...]
    n_state_bytes: tuple[int, ...]
    n_nextn: int = 0
    n_wide: int = 0

    @property
    def has_states(self) -> bool:
        """Whether any layer is recurrent."""
        return any(self.n_state_bytes)


def layer_memory(architecture: str, n_head_kv: tuple[int, ...], n_ff: tuple[int, ...], size: Size) -> LayerMemory:
    """n_head_kv and n_ff by layer, next-token layers included."""
    n_layer, n_nextn = len(n_head_kv), min(size("nextn_predict_layers"), len(n_head_kv))
    n_trunk = n_layer - n_nextn
    state = _state_bytes(size)
    if not state:
        return LayerMemory((True,) * n_trunk + (False,) * n_nextn, (0,) * n_layer, n_nextn)
    recurrent = [layer < n_trunk and _is_recurrent(architecture, layer, n_head_kv, size) for layer in range(n_layer)]
    attends = [layer < n_trunk and (not recurrent[layer] or architecture in _BOTH) for layer in range(n_layer)]
    if architecture.startswith("nemotron_h"):  # a layer is one of attention, state and feed-forward
        recurrent = [is_so and not n_ff[layer] for layer, is_so in enumerate(recurrent)]
        attends = [is_so and not n_ff[layer] for layer, is_so in enumerate(attends)]
    wide = _N_AT_ONCE_DELTA if architecture in _BY_INTERVAL else _N_AT_ONCE
    n_wide = round(wide * (2 * size("ssm.inner_size") + 2 * size("ssm.group_count") * size("ssm.state_size")))
    return LayerMemory(tuple(attends), tuple(state if is_so else 0 for is_so in recurrent), n_nextn, n_wide)


def _is_recurrent(architecture: str, layer: int, n_head_kv: tuple[int, ...], size: Size) -> bool:
    if architecture in _BY_INTERVAL:
        return (layer + 1) % (size("full_attention_interval") or _USUAL_INTERVAL) != 0
    if architecture in _BOTH or not any(n_head_kv):
        return True
    return n_head_kv[layer] == 0


def _state_bytes(size: Size) -> int:
    """Of one recurrent layer and one sequence: what convolutions remember, and the state itself."""
    n_embd, head = size("embedding_length"), size("wkv.head_size")
    if head:
        return _STATE_ITEM * n_embd * ((size("token_shift_count") or 2) + head)
    if size("shortconv.l_cache"):
        return _STATE_ITEM * n_embd * (size("shortconv.l_cache") - 1)
    inner, state = size("ssm.inner_size"), size("ssm.state_size")
    if not inner:
        return 0
    n_conv = max(0, size("ssm.conv_kernel") - 1)
    return _STATE_ITEM * (n_conv * (inner + 2 * size("ssm.group_count") * state) + inner * state)
