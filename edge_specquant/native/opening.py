"""Opens models with the settings that the self-test found safe: the way every other room gets a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import EngineUnsafeError
from .model import NativeModel
from .protocol import Progress
from .selftest.selftest import verdict


def open_model(
    path: Path,
    *,
    n_gpu_layers: int = 0,
    tensor_split: Sequence[float] = (),
    use_mmap: bool = True,
    use_mlock: bool = False,
    vocab_only: bool = False,
    use_extra_bufts: bool | None = None,
    use_kernel: bool = True,
    load_mtp: bool = False,
    op_offload: bool = False,
    experts_in_ram: bool = False,
    progress: Progress | None = None,
) -> NativeModel:
    """A loaded model; use_extra_bufts None or True is what the self-test allows, False is without.

    Raises ModelLoadError, EngineUnsafeError, EngineMissingError.
    """
    if vocab_only:  # computes nothing
        return NativeModel(path, use_extra_bufts=False, vocab_only=True)
    safety = verdict()
    if not safety.safe:
        raise EngineUnsafeError(f"the engine is not safe on this processor: {safety.reason}")
    return NativeModel(
        path,
        use_extra_bufts=safety.use_extra_bufts and use_extra_bufts is not False,
        n_gpu_layers=n_gpu_layers,
        tensor_split=tensor_split,
        use_mmap=use_mmap,
        use_mlock=use_mlock,
        use_kernel=use_kernel,
        op_offload=op_offload,
        experts_in_ram=experts_in_ram,
        vocab_only=vocab_only,
        load_mtp=load_mtp,
        progress=progress,
    )
