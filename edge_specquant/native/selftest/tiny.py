"""Writes tiny random Llama models as GGUF: seconds to make, small enough for any test, real enough for the engine.

Takes a path and a few sizes, gives the path back. The vocabulary is SentencePiece-like with byte fallback, so any text
can be tokenized. Equal arguments give equal bytes. Knows nothing about real checkpoints.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from ...errors import UsageError

_HEAD_SIZE = 32
_PIECES = (
    *("▁", "▁t", "▁a", "▁the", "▁of", "▁and", "▁to", "▁in", "▁is", "th", "he", "in", "er", "an", "re", "on", "at"),
    *("en", "nd", "ti", "es", "or", "te", "of", "ed", "is", "it", "al", "ar", "st", "to", "nt", "ing"),
)
_CHAT_TOKENS = ("<|im_start|>", "<|im_end|>")
# Chosen by trial: blocks outweigh the embedding in the residual stream, so that the next token depends on the whole
# context instead of echoing the last token, and logits spread widely enough (std about 4) for near-ties to be rare.
_BLOCK_GAIN = 2.0
_LOGIT_STD = 4.0

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class _Sizes:
    n_embd: int
    n_layer: int
    n_vocab: int

    @property
    def n_head(self) -> int:
        return self.n_embd // _HEAD_SIZE

    @property
    def n_head_kv(self) -> int:
        """Grouped-query attention where the number of heads allows it: its smallest divisor above one."""
        return next((d for d in range(2, self.n_head) if self.n_head % d == 0), self.n_head)

    @property
    def n_ff(self) -> int:
        return 2 * self.n_embd


def write_tiny_llama(
    path: Path,
    *,
    n_embd: int = 256,
    n_layer: int = 2,
    seed: int = 0,
    tied: bool = False,
    n_ctx_train: int = 512,
    n_padding_tokens: int = 0,
    dtype: str = "F16",
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """Write one model and return its path; an existing file is replaced at once, never half.

    `n_embd` is a multiple of 32: 256 takes K-quants, 288 makes them fall back. `tied` leaves the output head out.
    `n_padding_tokens` adds unused vocabulary rows, as checkpoints with padded embeddings have. `dtype` is F16 or F32.
    Raises UsageError for sizes no Llama can have.
    """
    if n_embd < 2 * _HEAD_SIZE or n_embd % _HEAD_SIZE or n_layer < 1:
        raise UsageError(f"n_embd={n_embd}, n_layer={n_layer}: needs a multiple of {_HEAD_SIZE} from 64 up and 1 layer")
    if dtype not in ("F16", "F32"):
        raise UsageError(f"dtype '{dtype}' is not F16 or F32")
    tokens, scores, kinds = vocabulary(n_padding_tokens)
    sizes = _Sizes(n_embd, n_layer, len(tokens))
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    writer = gguf.GGUFWriter(partial, "llama")
    try:
        _add_metadata(writer, sizes, n_ctx_train, dtype)
        add_vocabulary(writer, tokens, scores, kinds, chat_template)
        for name, values in _tensors(sizes, seed, tied):
            is_matrix = values.ndim == 2
            writer.add_tensor(name, values.astype(np.float16) if is_matrix and dtype == "F16" else values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.replace(path)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)
    return path


def _add_metadata(writer: gguf.GGUFWriter, sizes: _Sizes, n_ctx_train: int, dtype: str) -> None:
    writer.add_name(f"tiny-{sizes.n_embd}")
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(sizes.n_embd)
    writer.add_block_count(sizes.n_layer)
    writer.add_feed_forward_length(sizes.n_ff)
    writer.add_head_count(sizes.n_head)
    writer.add_head_count_kv(sizes.n_head_kv)
    writer.add_rope_dimension_count(_HEAD_SIZE)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(sizes.n_vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype == "F16" else gguf.LlamaFileType.ALL_F32)


def add_vocabulary(
    writer: gguf.GGUFWriter, tokens: list[str], scores: list[float], kinds: list[int], chat_template: str | None
) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    if chat_template is not None:
        writer.add_chat_template(chat_template)


def vocabulary(n_padding_tokens: int) -> tuple[list[str], list[float], list[int]]:
    """Special tokens, 256 bytes, printable ASCII, a few merges, chat markers, padding; a better score merges first."""
    kind = gguf.TokenType
    letters = [chr(code) for code in range(0x21, 0x7F)]
    pieces = list(dict.fromkeys([*_PIECES, *letters]))
    entries = [("<unk>", 0.0, kind.UNKNOWN), ("<s>", 0.0, kind.CONTROL), ("</s>", 0.0, kind.CONTROL)]
    entries += [(f"<0x{byte:02X}>", 0.0, kind.BYTE) for byte in range(256)]
    entries += [(piece, -float(rank), kind.NORMAL) for rank, piece in enumerate(pieces)]
    entries += [(marker, 0.0, kind.CONTROL) for marker in _CHAT_TOKENS]
    entries += [(f"[PAD{len(entries) + i}]", -1000.0, kind.UNUSED) for i in range(n_padding_tokens)]
    tokens, scores, kinds = zip(*entries, strict=True)
    return list(tokens), list(scores), [int(k) for k in kinds]


def _tensors(sizes: _Sizes, seed: int, tied: bool) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Name and values, (rows, columns) as numpy sees them: each row holds the weights of one output."""
    kv_width = sizes.n_head_kv * _HEAD_SIZE
    gain = _BLOCK_GAIN

    def matrix(name: str, n_out: int, n_in: int, std: float) -> tuple[str, npt.NDArray[np.float32]]:
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        return f"{name}.weight", rng.normal(0.0, std, (n_out, n_in)).astype(np.float32)

    def norm(name: str) -> tuple[str, npt.NDArray[np.float32]]:
        return f"{name}.weight", np.ones(sizes.n_embd, dtype=np.float32)

    by_embd = sizes.n_embd**-0.5
    yield matrix("token_embd", sizes.n_vocab, sizes.n_embd, _LOGIT_STD * by_embd)
    yield norm("output_norm")
    if not tied:
        yield matrix("output", sizes.n_vocab, sizes.n_embd, _LOGIT_STD * by_embd)
    for layer in range(sizes.n_layer):
        block = f"blk.{layer}"
        yield norm(f"{block}.attn_norm")
        yield matrix(f"{block}.attn_q", sizes.n_embd, sizes.n_embd, gain * by_embd)
        yield matrix(f"{block}.attn_k", kv_width, sizes.n_embd, gain * by_embd)
        yield matrix(f"{block}.attn_v", kv_width, sizes.n_embd, gain * by_embd)
        yield matrix(f"{block}.attn_output", sizes.n_embd, sizes.n_embd, gain * by_embd)
        yield norm(f"{block}.ffn_norm")
        yield matrix(f"{block}.ffn_gate", sizes.n_ff, sizes.n_embd, by_embd)
        yield matrix(f"{block}.ffn_up", sizes.n_ff, sizes.n_embd, by_embd)
        yield matrix(f"{block}.ffn_down", sizes.n_embd, sizes.n_ff, gain * sizes.n_ff**-0.5)
