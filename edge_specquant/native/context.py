"""A KV cache and the graph that fills it: decode, truncate, copy, abort. C return codes become errors of our tree.

Knows nothing of what the tokens mean; who calls it keeps the history (`engine/caches/kv_cache.py`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AbortedError, ContextError, ContextFullError, DecodeError, UsageError
from .library.abort import AbortFlag
from .library.hidden import Hidden, hidden_rows, keep_hidden
from .library.library import engine, ggml, log_sink
from .library.undo import Undo
from .protocol import Chunk, ContextParams, Logits

_GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
_NO_SLOT, _ABORTED, _BAD_BATCH = 1, 2, -1
_FLASH_AUTO, _FLASH_OFF, _FLASH_ON = -1, 0, 1


class NativeContext:
    """llama_context with `with`. Not thread-safe, but `abort` may be called from any thread.

    Raises ContextError when the engine cannot make it (memory, odd sizes).
    """

    def __init__(self, model_handle: Any, params: ContextParams, *, name: str) -> None:
        lib = engine()
        if params.n_ctx < 1 or params.n_batch < 1 or params.max_rows < 1:
            sizes = f"n_ctx {params.n_ctx}, n_batch {params.n_batch}, max_rows {params.max_rows}"
            raise ContextError(f"context sizes must be at least 1: {sizes}")
        self.params = params
        self.n_ctx = params.n_ctx
        self.n_batch = params.n_batch
        self.max_rows = min(params.max_rows, params.n_batch)
        self.abort_flag = AbortFlag()
        self._handle = lib.llama_init_from_model(model_handle, self._native_params(lib, params))
        if not self._handle:
            raise ContextError(
                f"no context of {params.n_ctx} tokens for {name}: {log_sink.errors() or 'out of memory?'}; "
                "try a smaller --ctx or a quantized KV cache"
            )
        self.n_embd: int = lib.llama_model_n_embd_out(model_handle)
        self.keeps_hidden = params.is_mtp and keep_hidden(self._handle, outputs_only=True)
        self.n_vocab: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model_handle))
        self._memory = lib.llama_get_memory(self._handle)
        is_whole = params.swa_full and params.n_seq == 1
        self._undo = Undo(
            self._handle,
            is_recurrent=not params.is_mtp
            and any(ask(model_handle) for ask in (lib.llama_model_is_recurrent, lib.llama_model_is_hybrid)),
            window=None if is_whole else int(lib.llama_model_n_swa(model_handle)) or None,
            is_shared=params.n_seq > 1,
        )
        self.can_truncate = self._undo.can_truncate
        self.n_rollback = self._undo.n_rollback
        self._make_batch(lib)

    @property
    def handle(self) -> Any:
        """The llama_context pointer. Raises DecodeError once closed."""
        if not self._handle:
            raise DecodeError("the context is closed")
        return self._handle

    def decode(self, tokens: Sequence[int], n_past: int, n_rows: int = 1, *, seq: int = 0) -> Logits:
        """Appends tokens at position n_past of sequence seq; logits of the last n_rows, shape (n_rows, n_vocab).

        The rows are a view that the next decode overwrites. On AbortedError and DecodeError the cells from n_past on
        are undefined: truncate to n_past before going on. Mirrors llama_decode.
        """
        n = len(tokens)
        if not 0 < n <= self.n_batch:
            raise DecodeError(f"a batch of {n} tokens; it must hold 1 to n_batch = {self.n_batch}")
        if not 0 <= n_rows <= min(n, self.max_rows):
            raise DecodeError(f"{n_rows} logits rows from {n} tokens; at most {min(n, self.max_rows)} here")
        if n_past + n > self.n_ctx:
            raise ContextFullError(f"{n_past} + {n} tokens do not fit a context of {self.n_ctx}; raise --ctx")
        batch = self._batch
        self._tokens[:n] = tokens
        self._positions[:n] = np.arange(n_past, n_past + n, dtype=np.int32)
        self._seqs[:n] = seq
        self._outputs[: n - n_rows] = 0
        self._outputs[n - n_rows : n] = 1
        batch.n_tokens = n
        self._run(n_past, {seq: n})
        return self._rows(n_rows)

    def decode_hidden(self, tokens: Sequence[int], hidden: Hidden, n_past: int) -> Logits:
        """Of an MTP context: as `decode`, each token with the hidden state of the position before it, (n, n_embd)."""
        self._hidden[: len(tokens)] = hidden
        return self.decode(tokens, n_past)

    def keep_hidden(self) -> bool:
        """From now on each decode keeps the hidden states of all its tokens; False where this engine cannot."""
        self.keeps_hidden = self.keeps_hidden or keep_hidden(self.handle, outputs_only=False)
        return self.keeps_hidden

    def hidden(self, n: int) -> Hidden:
        """The hidden states of the last decode's n tokens (an MTP context: of its n outputs), (n, n_embd), a copy."""
        return hidden_rows(self.handle, n, self.n_embd)

    def decode_mixed(self, chunks: Sequence[Chunk]) -> list[Logits]:
        """Several sequences in one decode, one chunk a sequence; the rows of each, views that the next decode
        overwrites. After an error the cells of every chunk from its n_past on are undefined.
        """
        n, n_rows = sum(len(chunk.tokens) for chunk in chunks), sum(chunk.n_rows for chunk in chunks)
        if not 0 < n <= self.n_batch or n_rows > self.max_rows:
            limits = f"n_batch {self.n_batch}, max_rows {self.max_rows}"
            raise DecodeError(f"a mixed batch of {n} tokens and {n_rows} logits rows; it must fit {limits}")
        at = 0
        for chunk in chunks:
            end = at + len(chunk.tokens)
            self._tokens[at:end] = chunk.tokens
            self._positions[at:end] = np.arange(chunk.n_past, chunk.n_past + end - at, dtype=np.int32)
            self._seqs[at:end] = chunk.seq
            self._outputs[at:end] = 0
            self._outputs[end - chunk.n_rows : end] = 1
            at = end
        self._batch.n_tokens = n
        self._run(chunks[0].n_past, {chunk.seq: len(chunk.tokens) for chunk in chunks})
        rows = self._rows(n_rows)
        starts = np.cumsum([0, *(chunk.n_rows for chunk in chunks)])
        return [rows[start : start + chunk.n_rows] for start, chunk in zip(starts, chunks, strict=False)]

    def truncate(self, n: int, *, seq: int = 0) -> bool:
        """Keeps positions 0..n-1; False when this kind of cache cannot drop a suffix (llama_memory_seq_rm)."""
        return self._undo.truncate(n, seq)

    def used(self, *, seq: int = 0) -> int:
        """Positions held by the sequence."""
        return int(engine().llama_memory_seq_pos_max(self._memory, seq)) + 1

    def clear(self, *, seq: int = 0) -> None:
        """Forgets the whole sequence."""
        self._undo.clear(seq)

    def save_partial(self, *, seq: int = 0, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The part of the sequence that cannot be truncated, as bytes (llama_state_seq_get_data_ext, partial only)."""
        return self._undo.save(seq, into)

    def load_partial(self, data: NDArray[np.uint8], n: int, *, seq: int = 0) -> bool:
        """Keeps positions 0..n-1, with what `save_partial` gave when there were n; False when the bytes do not fit."""
        return self._undo.load(data, n, seq)

    def save_state(self, *, seq: int = 0) -> NDArray[np.uint8]:
        """The sequence's cells as bytes (llama_state_seq_get_data)."""
        lib = engine()
        size = lib.llama_state_seq_get_size(self.handle, seq)
        data = np.empty(size, dtype=np.uint8)
        pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        written = lib.llama_state_seq_get_data(self.handle, pointer, size, seq)
        return data[:written]

    def load_state(self, data: NDArray[np.uint8], *, seq: int = 0) -> bool:
        """Replaces the sequence's cells; False when the bytes do not fit this context (llama_state_seq_set_data)."""
        pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        self._undo.loaded(seq)
        return bool(engine().llama_state_seq_set_data(self.handle, pointer, data.size, seq))

    def copy_state_from(self, other: NativeContext, *, seq: int = 0) -> bool:
        """Takes over another context's cells of the sequence: a sibling's, made from the same checkpoint."""
        if (other.params.type_k, other.params.type_v) != (self.params.type_k, self.params.type_v):
            return False
        return self.load_state(other.save_state(seq=seq), seq=seq)

    def set_threads(self, n_threads: int, n_threads_batch: int) -> None:
        """Threads for single tokens and for batches (llama_set_n_threads)."""
        engine().llama_set_n_threads(self.handle, n_threads, n_threads_batch)

    def abort(self) -> None:
        """Stops the running decode; later ones fail too until `resume`."""
        self.abort_flag.set()

    def resume(self) -> None:
        """Clears an abort."""
        self.abort_flag.clear()

    def close(self) -> None:
        """Frees cache and buffers; twice is fine."""
        handle, self._handle = self._handle, None
        if handle:
            engine().llama_free(handle)

    def __enter__(self) -> NativeContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _native_params(self, lib: Any, params: ContextParams) -> Any:
        native = lib.llama_context_default_params()
        native.n_ctx = params.n_ctx
        native.n_batch = native.n_ubatch = params.n_batch
        native.n_seq_max = params.n_seq
        native.n_rs_seq = 0 if params.is_mtp else params.n_rollback
        native.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP if params.is_mtp else native.ctx_type
        native.n_outputs_max = max(self.max_rows, params.n_seq)
        native.kv_unified = params.n_seq > 1
        # The engine's own default is 4 threads on any machine, which on two cores is half the speed.
        native.n_threads = params.n_threads or _usable_cpus()
        native.n_threads_batch = params.n_threads_batch or native.n_threads
        native.type_k, native.type_v = _kv_type(params.type_k), _kv_type(params.type_v)
        flash = params.flash_attention
        native.flash_attn_type = _FLASH_AUTO if flash is None else _FLASH_ON if flash else _FLASH_OFF
        native.swa_full = params.swa_full
        native.offload_kqv = params.offload_kqv
        native.op_offload = params.op_offload
        native.no_perf = True
        native.abort_callback = self.abort_flag.callback
        native.abort_callback_data = self.abort_flag.data
        if params.eval_callback is not None:
            native.cb_eval = params.eval_callback
            native.cb_eval_user_data = params.eval_callback_data
        return native

    def _make_batch(self, lib: Any) -> None:
        """One llama_batch over numpy arrays for the life of the context: filling it costs microseconds."""
        n = self.n_batch
        self._tokens, self._positions, self._seqs = (np.zeros(n, dtype=np.int32) for _ in range(3))
        self._outputs = np.zeros(n, dtype=np.int8)
        self._hidden = np.zeros((n if self.params.is_mtp else 0, self.n_embd), dtype=np.float32)
        self._seq_counts = np.ones(n, dtype=np.int32)
        seq_addresses = self._seqs.ctypes.data + self._seqs.itemsize * np.arange(n, dtype=np.uintp)
        self._seq_pointers = np.ascontiguousarray(seq_addresses, dtype=np.uintp)
        self._batch = lib.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, ctypes.c_int32),
            embd=_pointer(self._hidden, ctypes.c_float) if self.params.is_mtp else None,
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._seq_counts, ctypes.c_int32),
            seq_id=ctypes.cast(self._seq_pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )

    def _rows(self, n_rows: int) -> Logits:
        if n_rows == 0:
            return np.empty((0, self.n_vocab), dtype=np.float32)
        pointer = engine().llama_get_logits(self.handle)
        return np.ctypeslib.as_array(pointer, (n_rows, self.n_vocab))

    def _run(self, n_past: int, n_tokens: dict[int, int]) -> None:
        """Decodes the batch: so many tokens of each sequence."""
        code = engine().llama_decode(self.handle, self._batch)
        if code in (0, _NO_SLOT, _BAD_BATCH):
            self._undo.decoded(n_tokens if code == 0 else {})
        else:
            self._undo.failed(n_tokens)
        self._raise_for(code, n_past, self._batch.n_tokens)

    def _raise_for(self, code: int, n_past: int, n: int) -> None:
        if code == 0:
            return
        if code == _NO_SLOT:
            raise ContextFullError(f"no KV cells free for {n} tokens at position {n_past}; raise --ctx")
        if code == _ABORTED:
            raise AbortedError(f"stopped while decoding {n} tokens at position {n_past}")
        raise DecodeError(f"llama_decode failed with code {code} for {n} tokens at {n_past}: {log_sink.errors()}")


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def _kv_type(name: str) -> int:
    try:
        return _GGML_TYPES[name.lower()]
    except KeyError:
        raise UsageError(f"'{name}' is not a KV cache type; use one of {', '.join(_GGML_TYPES)}") from None


def kv_bytes(name: str, n_values: int) -> int:
    """Bytes of so many values of a KV cache (ggml_row_size). Raises UsageError."""
    size = ggml().ggml_row_size
    size.restype, size.argtypes = ctypes.c_size_t, [ctypes.c_int, ctypes.c_int64]
    return int(size(_kv_type(name), n_values))
