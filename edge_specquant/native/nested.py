"""The target around a draft: one loaded base model, and contexts of it that compute with the residual plane too.

`SharedModel` lets several owners hold one loaded model. `NestedModel` takes such a base and the planes (see
`nested_planes.py`), and gives contexts with the interface of ordinary ones. Knows nothing of families.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .context import NativeContext
from .model import NativeModel
from .nested_hooks import Hook, KernelHook, PlaneFiles
from .nested_kernel import Kernel, kernel
from .nested_plain import PlainHook
from .nested_planes import TIED, Plane
from .protocol import ContextParams
from .vocab import NativeVocab


class SharedModel:
    """One owner's share of a loaded model: the weights are freed when the last owner has closed its share."""

    def __init__(self, model: NativeModel, owners: list[SharedModel] | None = None) -> None:
        self.model = model
        self._owners = [] if owners is None else owners
        self._owners.append(self)
        self.path = model.path
        self.n_ctx_train = model.n_ctx_train
        self.chat_template = model.chat_template
        self.can_truncate = model.can_truncate
        self.n_bytes = model.n_bytes

    @property
    def vocab(self) -> NativeVocab:
        """The vocabulary."""
        return self.model.vocab

    @property
    def is_loaded(self) -> bool:
        """Whether any owner still holds the model, so that it can be shared."""
        return bool(self._owners)

    def share(self) -> SharedModel:
        """Another owner's share of the same weights."""
        return SharedModel(self.model, self._owners)

    def context(self, params: ContextParams) -> NativeContext:
        """Makes a context on this model. Raises ContextError."""
        return self.model.context(params)

    def close(self) -> None:
        """Gives this share up; close its contexts first. Twice is fine."""
        if self in self._owners:
            self._owners.remove(self)
            if not self._owners:
                self.model.close()

    def __enter__(self) -> SharedModel:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class NestedModel:
    """The target of a nested family: base and residual together. Takes over its share of the base.

    use_kernel None takes the compiled kernel where there is one. Without `with_residual` it is the draft: the base
    alone, by the kernel where that beats the engine. A target whose base is on a GPU is a UsageError.
    """

    def __init__(
        self,
        base: SharedModel,
        residual: Path,
        planes: Sequence[Plane],
        *,
        use_kernel: bool | None = None,
        with_residual: bool = True,
    ) -> None:
        on_gpu = base.model.n_gpu_layers != 0
        if on_gpu and with_residual:
            raise UsageError("a nested target computes on the CPU; run it with --n-gpu-layers 0")
        self.base = base
        self.path = residual
        self.n_ctx_train = base.n_ctx_train
        self.chat_template = base.chat_template
        self.can_truncate = base.can_truncate
        self._files = PlaneFiles(base.path, residual, planes)
        self._with_residual = with_residual
        self.n_bytes = base.n_bytes + with_residual * sum(plane.n_residual_bytes for plane in planes)
        wanted = use_kernel is not False and not on_gpu
        found = _usable_kernel(planes, with_residual) if wanted else "the kernel was not wanted"
        if use_kernel and isinstance(found, str):
            raise UsageError(found)
        self._kernel = found if isinstance(found, Kernel) else None
        self.way = found.name if isinstance(found, Kernel) else f"without a kernel: {found}"

    @property
    def vocab(self) -> NativeVocab:
        """The vocabulary, the base's."""
        return self.base.vocab

    def context(self, params: ContextParams) -> NativeContext:
        """Makes a context that computes with both planes, or with the base alone. Raises ContextError."""
        hook: Hook
        if self._kernel:
            hook = KernelHook(self._kernel, self._files, with_residual=self._with_residual)
        elif self._with_residual:
            hook = PlainHook(self._files, params.n_threads)
        else:
            return self.base.context(params)
        return NestedContext(self.base.model.handle, params, hook, name=self.path.name)

    def close(self) -> None:
        """Frees the mapping and this share of the base; close contexts first. Twice is fine."""
        self.base.close()

    def __enter__(self) -> NestedModel:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class NestedContext(NativeContext):
    """A context of the base whose products take the residual too."""

    def __init__(self, model_handle: Any, params: ContextParams, hook: Hook, *, name: str) -> None:
        self._hook = hook
        hooked = dataclasses.replace(params, eval_callback=hook.callback, eval_callback_data=hook.data)
        try:
            super().__init__(model_handle, hooked, name=name)
        except BaseException:
            hook.close()
            raise

    def _raise_for(self, code: int, n_past: int, n: int) -> None:
        """Called after every decode: also raises DecodeError when a product was not done with both planes."""
        super()._raise_for(code, n_past, n)
        self._hook.check()

    def close(self) -> None:
        """Frees cache and buffers, then what the hook held; twice is fine."""
        super().close()
        self._hook.close()


def _usable_kernel(planes: Sequence[Plane], with_residual: bool) -> Kernel | str:
    if with_residual and any(plane.kind != TIED for plane in planes):
        return "the kernel computes tied residuals only"
    found = kernel()
    if not with_residual and isinstance(found, Kernel) and not found.suits_the_base_alone:
        return "the engine's own products are faster for the base alone"
    return found
