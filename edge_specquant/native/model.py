"""A GGUF file in memory: weights, vocabulary, metadata. Makes contexts; knows nothing of prompts or drafts."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import ContextError, EngineError, ModelLoadError
from ..units import format_bytes
from .context import NativeContext, kv_bytes
from .hooks.hooked import HookedContext
from .hooks.products import fast_products
from .library.devices import largest_buffer
from .library.library import engine, ggml, log_sink
from .protocol import ContextParams, Progress
from .vocab import NativeVocab

EXPERTS_PATTERN = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The tensors that llama.cpp's own --cpu-moe keeps on the CPU (common/common.h, LLM_FFN_EXPS_REGEX)."""


class NativeModel:
    """llama_model with `with`; free contexts before the model.

    n_gpu_layers: layers placed on GPUs, -1 for all. use_extra_bufts: repacked weights (see `selftest.py`).
    tensor_split: share of each GPU. With 0 layers no device is bound, unless it is to compute wide batches of what lies
    in RAM (op_offload), so that nothing is reserved there. experts_in_ram: the experts of a mixture stay on the CPU.
    use_kernel: products of what the CPU computes by `products.py`.
    vocab_only loads no weights. load_mtp: next-token layers too; the file must have them.
    progress(fraction) returning False stops the load.
    Raises ModelLoadError.
    """

    def __init__(
        self,
        path: Path,
        *,
        use_extra_bufts: bool,
        n_gpu_layers: int = 0,
        tensor_split: Sequence[float] = (),
        use_mmap: bool = True,
        use_mlock: bool = False,
        use_kernel: bool = True,
        op_offload: bool = False,
        experts_in_ram: bool = False,
        vocab_only: bool = False,
        load_mtp: bool = False,
        progress: Progress | None = None,
    ) -> None:
        lib = engine()
        if not path.is_file():
            raise ModelLoadError(f"there is no model file at {path}")
        self.path = path
        self._handle: Any = None
        params = lib.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = use_extra_bufts
        params.vocab_only = vocab_only
        params.load_mtp = load_mtp
        params.load_mode = _load_mode(lib, use_mmap, use_mlock)
        split = _split_array(lib, tensor_split)
        if split is not None:
            params.tensor_split = split
        none = (ctypes.c_void_p * 1)(None)
        if n_gpu_layers == 0 and not op_offload:
            params.devices = ctypes.addressof(none)
        overrides = _experts_on_cpu() if experts_in_ram else None
        if overrides is not None:
            params.tensor_buft_overrides = ctypes.addressof(overrides)
        watcher = lib.llama_progress_callback(lambda done, _data: progress(done)) if progress else None
        if watcher is not None:
            params.progress_callback = watcher
        log_sink.clear()
        self._handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            raise ModelLoadError(f"{path.name} could not be loaded: {log_sink.errors() or 'the engine gave no reason'}")
        self.use_extra_bufts = use_extra_bufts
        self.use_kernel = use_kernel
        self.n_gpu_layers = n_gpu_layers
        self.op_offload = op_offload
        self.experts_in_ram = experts_in_ram
        self.vocab = NativeVocab(lib.llama_model_get_vocab(self._handle))
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(self._handle)
        self.n_layer: int = lib.llama_model_n_layer(self._handle)
        self.n_embd: int = lib.llama_model_n_embd(self._handle)
        self.n_bytes: int = lib.llama_model_size(self._handle)
        self.n_params: int = lib.llama_model_n_params(self._handle)
        self.n_nextn: int = lib.llama_model_n_layer_nextn(self._handle) if load_mtp else 0
        self.n_swa: int = lib.llama_model_n_swa(self._handle)
        self.is_recurrent = bool(lib.llama_model_is_recurrent(self._handle) or lib.llama_model_is_hybrid(self._handle))
        self.can_truncate = not self.is_recurrent
        self.chat_template = self._template(None)
        self.tool_template = self._template(b"tool_use")

    def _template(self, name: bytes | None) -> str | None:
        template = engine().llama_model_chat_template(self._handle, name)
        return template.decode("utf-8", "replace") if template else None

    @property
    def handle(self) -> Any:
        """The llama_model pointer. Raises EngineError once closed."""
        if not self._handle:
            raise EngineError(f"the model {self.path.name} is closed")
        return self._handle

    def metadata(self, key: str) -> str | None:
        """A metadata value as text, or None."""
        lib = engine()
        size = lib.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        if size < 0:
            return None
        buffer = ctypes.create_string_buffer(size + 1)
        lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, size + 1)
        return buffer.value.decode("utf-8", "replace")

    @property
    def computes_on_cpu(self) -> bool:
        """Whether the CPU has products to compute: not where all layers and experts are on devices."""
        return self.experts_in_ram or 0 <= self.n_gpu_layers <= self.n_layer

    def context(self, params: ContextParams) -> NativeContext:
        """Makes a context on this model, with the compiled kernel for the CPU's part where it is the faster way.

        Raises ContextError.
        """
        params = dataclasses.replace(params, op_offload=self.op_offload)
        if self.n_gpu_layers and params.offload_kqv:
            self._require_room(params)
        takes_kernel = self.use_kernel and self.computes_on_cpu and not params.eval_callback
        products = fast_products() if takes_kernel else None
        if products is None:
            return NativeContext(self.handle, params, name=self.path.name)
        return HookedContext(self.handle, params, products, name=self.path.name)

    def _require_room(self, params: ContextParams) -> None:
        """Raises ContextError where one layer's keys are more than a device's largest buffer holds."""
        limit = largest_buffer()
        n_bytes = params.n_ctx * params.n_seq * self._n_key_bytes(params.type_k)
        if limit is not None and n_bytes > limit:
            raise ContextError(
                f"a context of {params.n_ctx * params.n_seq} tokens for {self.path.name} needs buffers of "
                f"{format_bytes(n_bytes)}, and the GPU's largest is {format_bytes(limit)}; "
                "try a smaller --ctx, a quantized KV cache or --gpu-layers 0"
            )

    def _n_key_bytes(self, kind: str) -> int:
        """Bytes of one token's keys in one layer, by the widest layer."""
        lib = engine()
        n_head_kv = lib.llama_model_n_head_kv(self.handle)
        said = self.metadata(f"{self.metadata('general.architecture')}.attention.key_length")
        size = int(said) if said else self.n_embd // max(1, lib.llama_model_n_head(self.handle))
        return kv_bytes(kind, n_head_kv * size)

    def close(self) -> None:
        """Frees the weights; close contexts first. Twice is fine."""
        handle, self._handle = self._handle, None
        if handle:
            engine().llama_model_free(handle)

    def __enter__(self) -> NativeModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _load_mode(lib: Any, use_mmap: bool, use_mlock: bool) -> int:
    if use_mlock:
        return int(getattr(lib, "LLAMA_LOAD_MODE_MLOCK", lib.LLAMA_LOAD_MODE_MMAP))
    return int(lib.LLAMA_LOAD_MODE_MMAP if use_mmap else lib.LLAMA_LOAD_MODE_NONE)


def _split_array(lib: Any, tensor_split: Sequence[float]) -> Any:
    if not tensor_split:
        return None
    n_devices = lib.llama_max_devices()
    padded = list(tensor_split)[:n_devices] + [0.0] * max(0, n_devices - len(tensor_split))
    return (ctypes.c_float * n_devices)(*padded)


class _BuftOverride(ctypes.Structure):
    """struct llama_model_tensor_buft_override (llama.h)."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


def _experts_on_cpu() -> Any:
    """tensor_buft_overrides that keep the experts' matrices in main memory; a null pattern ends the list."""
    library = ggml()
    library.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
    overrides = (_BuftOverride * 2)()
    overrides[0] = _BuftOverride(EXPERTS_PATTERN, library.ggml_backend_cpu_buffer_type())
    return overrides
