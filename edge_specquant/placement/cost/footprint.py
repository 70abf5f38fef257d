"""How many bytes a model takes where: weights, KV cache, compute buffer, output buffer, per layer and per device.

Takes a ModelCard (the GGUF header) and a ContextShape, gives byte counts. Pure: no file, no engine, no machine. The KV
cache is exact (llama-kv-cache.cpp); weights are the tensors' bytes; the compute buffer is a model of ggml's graph
allocator at its three peaks, within a few per cent of what the engine reserves (tests compare them).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...errors import UsageError
from ...gguf.format.container import TensorInfo
from ...gguf.format.header import ModelCard
from ...gguf.format.layer_memory import ROLLS_BACK
from ...gguf.format.weight_types import BY_NAME, WeightType
from ...native.protocol import DEFAULT_MAX_ROWS, DEFAULT_N_BATCH, DEFAULT_N_ROLLBACK, N_KEPT_STATES

_CELL_ALIGNMENT = 256  # llama.cpp rounds n_ctx, and the cells of a window, up to this
_SCALAR = 4  # activations are 32-bit floats
_MASK_ITEM = 2  # the attention mask is 16-bit with flash attention, 32-bit without

# Every n-th layer attends to everything, the others to a window (llama_hparams::set_swa_pattern in each architecture).
_WINDOW_PERIOD = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "exaone4": 4}

# Weight types that the CPU backend rearranges at load time (ggml-cpu/repack.cpp); the copy is anonymous memory.
_REPACKED_X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
_REPACKED_ARM = frozenset({"Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "Q8_0", "MXFP4"})


@dataclass(frozen=True, slots=True)
class ContextShape:
    """What sizes a context, as in native/protocol.py's ContextParams; n_seq sequences have n_ctx tokens each."""

    n_ctx: int
    type_k: str = "f16"
    type_v: str = "f16"
    n_batch: int = DEFAULT_N_BATCH
    max_rows: int = DEFAULT_MAX_ROWS
    flash_attention: bool = True
    swa_full: bool = True
    n_seq: int = 1
    n_rollback: int = DEFAULT_N_ROLLBACK

    @property
    def n_cells(self) -> int:
        """Cells of all sequences, which share them: n_ctx of each, rounded up as the engine does."""
        return _round_up(self.n_ctx * self.n_seq, _CELL_ALIGNMENT)

    @property
    def n_rows(self) -> int:
        """Logits rows of one batch: max_rows of each sequence, as engine/parallel/batching.py asks for them."""
        return min(self.max_rows * self.n_seq, self.n_batch) if self.n_seq > 1 else self.max_rows


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on one device."""

    n_weights: int = 0
    n_kv: int = 0
    n_compute: int = 0
    n_output: int = 0

    @property
    def n_total(self) -> int:
        return self.n_weights + self.n_kv + self.n_compute + self.n_output


@dataclass(frozen=True, slots=True)
class SplitFootprint:
    """Bytes on the host and on each device, in the order of tensor_split; n_layers_on: layers there, head included."""

    host: Footprint
    devices: tuple[Footprint, ...]
    n_layers_on: tuple[int, ...]

    @property
    def n_total(self) -> int:
        return self.host.n_total + sum(device.n_total for device in self.devices)


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of the tensors by place: n_input (embedding, always on the host), each layer, n_output (norm and head).

    With tied embeddings n_head_copy is the second copy of the embedding that serves as head away from the host.
    """

    n_input: int
    layers: tuple[int, ...]
    n_output: int
    n_head_copy: int

    @property
    def n_layers(self) -> int:
        return len(self.layers)


def weight_bytes(card: ModelCard) -> WeightBytes:
    """Sorts the header's tensors by place."""
    layers = [0] * card.n_layer
    n_input = n_output = n_embedding = 0
    for tensor in card.tensors:
        layer = _layer_of(tensor)
        if layer is not None and layer < card.n_layer:
            layers[layer] += tensor.n_bytes
        elif tensor.name.startswith(("token_embd", "per_layer_token_embd", "position_embd")):
            n_input += tensor.n_bytes
            n_embedding += tensor.n_bytes if tensor.name == "token_embd.weight" else 0
        else:
            n_output += tensor.n_bytes
    return WeightBytes(n_input, tuple(layers), n_output, n_embedding if card.has_tied_embeddings else 0)


def kv_layer_bytes(card: ModelCard, shape: ContextShape) -> tuple[int, ...]:
    """KV bytes of each layer, exact. Raises UsageError when a KV type's block does not divide the head sizes."""
    type_k, type_v = kv_type(shape.type_k), kv_type(shape.type_v)
    check_kv_types(card, shape)
    window = _window_cells(card, shape)
    return tuple(
        (shape.n_cells if window is None or _is_full_layer(card, layer) else window)
        * (type_k.n_bytes(n_head_kv * card.head_size_k) + type_v.n_bytes(n_head_kv * card.head_size_v))
        * card.memory.attends[layer]
        for layer, n_head_kv in enumerate(card.n_head_kv_by_layer)
    )


def state_layer_bytes(card: ModelCard, shape: ContextShape) -> tuple[int, ...]:
    """Bytes of each layer's recurrent states, with the copies kept to roll back, exact (llama-memory-recurrent.cpp)."""
    n_copies = shape.n_seq * (1 + (shape.n_rollback if card.architecture in ROLLS_BACK else 0))
    return tuple(n_copies * n_bytes for n_bytes in card.memory.n_state_bytes)


def kept_state_bytes(card: ModelCard, shape: ContextShape) -> int:
    """Bytes of the states kept on the host, to go back to where a context cannot by itself."""
    return N_KEPT_STATES * shape.n_seq * sum(card.memory.n_state_bytes)


def kv_type(name: str) -> WeightType:
    """The type of a KV cache by its name ("f16", "q8_0", …). Raises UsageError."""
    try:
        return BY_NAME[name.upper()]
    except KeyError:
        raise UsageError(f"'{name}' is not a KV cache type; use f16, bf16, q8_0, q5_1, q4_0 or f32") from None


def check_kv_types(card: ModelCard, shape: ContextShape) -> None:
    """Raises UsageError for what llama_init_from_model refuses."""
    for label, name, size in (("K", shape.type_k, card.head_size_k), ("V", shape.type_v, card.head_size_v)):
        if not kv_type(name).fits(size):
            raise UsageError(f"a {name} {label} cache needs heads of a multiple of 32; {card.architecture} has {size}")
    if kv_type(shape.type_v).is_quantized and not shape.flash_attention:
        raise UsageError(f"a {shape.type_v} V cache needs flash attention")


def output_bytes(card: ModelCard, shape: ContextShape) -> int:
    """The buffer the logits are copied to, always on the host: one row at first, grown to max_rows when needed."""
    return n_vocab(card) * _SCALAR * shape.n_rows


def compute_bytes(card: ModelCard, shape: ContextShape) -> int:
    """The largest of the peaks of the graph: feed-forward, attention, logits, recurrent layer with its new states.

    Counted in rows of activations alive at once, as observed with the pinned engine for Llama, Qwen2, Qwen3, Gemma2/3.
    """
    n_tokens = min(shape.n_batch, shape.n_ctx)
    q, kv = card.n_head * card.head_size_k, card.n_head_kv * (card.head_size_k + card.head_size_v)
    n_columns = shape.n_cells
    if card.sliding_window and card.architecture in _WINDOW_PERIOD:  # a second mask for the windowed layers
        n_columns += _window_cells(card, shape) or shape.n_cells
    mask = n_tokens * n_columns * (_MASK_ITEM if shape.flash_attention else _SCALAR)
    scores = 0 if shape.flash_attention else n_tokens * shape.n_cells * card.n_head * _SCALAR
    n_residual = min(4, card.n_layer)
    feed_forward = n_tokens * _SCALAR * (3 * card.n_ff + n_residual * card.n_embd) + mask
    attention = n_tokens * _SCALAR * (3 * card.n_embd + 2 * q + kv) + mask + scores
    n_rows = min(shape.n_rows, n_tokens)
    logits = n_rows * _SCALAR * (n_vocab(card) + 3 * card.n_embd)
    recurrent = n_tokens * _SCALAR * card.memory.n_wide + 2 * max(state_layer_bytes(card, shape), default=0) + mask
    return max(feed_forward, attention, logits, recurrent if card.memory.has_states else 0)


def n_vocab(card: ModelCard) -> int:
    """Rows of the output head: the vocabulary with its padding."""
    heads = [tensor for tensor in card.tensors if tensor.name in {"output.weight", "token_embd.weight"}]
    return max((tensor.shape[1] for tensor in heads if len(tensor.shape) > 1), default=card.n_vocab)


def footprint(
    card: ModelCard,
    shape: ContextShape,
    *,
    n_gpu_layers: int = 0,
    tensor_split: Sequence[float] = (1.0,),
    is_arm: bool = False,
    use_extra_bufts: bool = True,
    weights: WeightBytes | None = None,
) -> SplitFootprint:
    """Where the bytes go: n_gpu_layers counted from the end, the head first (llama_model::load_tensors).

    tensor_split: shares of the devices; n_gpu_layers -1 or above n_layer puts everything but the embedding there.
    weights: what weight_bytes(card) gave, to spare counting again.
    """
    weights, kv = weights or weight_bytes(card), kv_layer_bytes(card, shape)
    kv = tuple(cells + states for cells, states in zip(kv, state_layer_bytes(card, shape), strict=True))
    compute, output = compute_bytes(card, shape), output_bytes(card, shape)
    places = place_layers(card.n_layer, n_gpu_layers, tensor_split)
    n_devices = len(tensor_split)
    sums = [[0, 0, 0] for _ in range(n_devices + 1)]  # weights, kv, layers; the host comes last (index -1)
    for layer, place in enumerate(places):
        if layer < card.n_layer:
            sums[place][0] += weights.layers[layer]
            sums[place][1] += kv[layer]
        else:
            sums[place][0] += _head_bytes(card, weights, place, is_arm, use_extra_bufts)
        sums[place][2] += 1
    sums[-1][0] += weights.n_input
    sums[-1][1] += kept_state_bytes(card, shape)
    *devices, (host_weights, host_kv, host_layers) = sums
    everything_away = host_layers == 0
    return SplitFootprint(
        host=Footprint(host_weights, host_kv, _host_compute(card, shape) if everything_away else compute, output),
        devices=tuple(Footprint(n, k, compute if layers else 0) for n, k, layers in devices),
        n_layers_on=tuple(layers for _, _, layers in devices),
    )


def place_layers(n_layer: int, n_gpu_layers: int, tensor_split: Sequence[float]) -> tuple[int, ...]:
    """Device index of each layer and, last, of the output head; -1 is the host. Mirrors get_layer_buft_list."""
    n_all = n_layer + 1
    n_away = n_all if n_gpu_layers < 0 else min(n_gpu_layers, n_all)
    total = sum(tensor_split) or 1.0
    limits = [share / total for share in accumulate(tensor_split)]
    first = n_all - n_away
    return tuple(
        -1 if layer < first else min(bisect_right(limits, (layer - first) / n_away), len(limits) - 1)
        for layer in range(n_all)
    )


def repacked_types(is_arm: bool) -> frozenset[str]:
    """Weight types whose pages are a private copy after loading, so that mmap does not make a reload cheap."""
    return _REPACKED_ARM if is_arm else _REPACKED_X86


def _head_bytes(card: ModelCard, weights: WeightBytes, place: int, is_arm: bool, use_extra_bufts: bool) -> int:
    """The head's bytes. A tied head is a second copy away from the host, and on it when its type is repacked."""
    if place >= 0:
        return weights.n_output + weights.n_head_copy
    embedding = next((tensor for tensor in card.tensors if tensor.name == "token_embd.weight"), None)
    copied = embedding is not None and use_extra_bufts and embedding.weight_type.name in repacked_types(is_arm)
    return weights.n_output + (weights.n_head_copy if copied else 0)


def _host_compute(card: ModelCard, shape: ContextShape) -> int:
    """What the host keeps when all layers are away: embeddings of a batch and the inputs."""
    n_tokens = min(shape.n_batch, shape.n_ctx)
    return n_tokens * (card.n_embd * _SCALAR + shape.n_cells * _MASK_ITEM)


def _window_cells(card: ModelCard, shape: ContextShape) -> int | None:
    """Cells of a layer with a sliding window, or None where every layer is full."""
    if shape.swa_full or not card.sliding_window or card.architecture not in _WINDOW_PERIOD:
        return None
    return min(shape.n_cells, _round_up(card.sliding_window + shape.n_batch, _CELL_ALIGNMENT))


def _is_full_layer(card: ModelCard, layer: int) -> bool:
    period = _WINDOW_PERIOD[card.architecture]
    return layer % period == period - 1


def _layer_of(tensor: TensorInfo) -> int | None:
    prefix, _, rest = tensor.name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if prefix == "blk" and number.isdigit() else None


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
