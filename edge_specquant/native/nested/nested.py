"""The target around a draft: one loaded base model, and contexts of it that compute with the residual plane too.

`SharedModel` lets several owners hold one loaded model. `NestedModel` takes such a base and the planes (see
`kernel/nested_planes.py`), and gives contexts with the interface of ordinary ones. Knows nothing of families.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ..context import NativeContext
from ..hooks.hooked import Hook, HookedContext
from ..kernel import Kernel, kernel
from ..kernel.nested_planes import TIED, Plane
from ..model import NativeModel
from ..protocol import ContextParams
from ..vocab import NativeVocab
from .nested_hooks import KernelHook, PlaneFiles
from .nested_plain import PlainHook


class SharedModel:
    """One owner's share of a loaded model: the weights are freed when the last owner has closed its share."""

    def __init__(self, model: NativeModel, owners: list[SharedModel] | None = None) -> None:
        self.model = model
        self._owners = [] if owners is None else owners
        self._owners.append(self)
        self.path = model.path
        self.n_ctx_train = model.n_ctx_train
        self.chat_template = model.chat_template
        self.tool_template = model.tool_template
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

    use_kernel None takes the compiled kernel where there is one. A base on a GPU is a UsageError.
    """

    def __init__(
        self,
        base: SharedModel,
        residual: Path,
        planes: Sequence[Plane],
        *,
        use_kernel: bool | None = None,
    ) -> None:
        if base.model.n_gpu_layers != 0 or base.model.op_offload:
            raise UsageError("a nested target computes on the CPU; run it with --n-gpu-layers 0")
        self.base = base
        self.path = residual
        self.n_ctx_train = base.n_ctx_train
        self.chat_template = base.chat_template
        self.tool_template = base.tool_template
        self.can_truncate = base.can_truncate
        self._files = PlaneFiles(base.path, residual, planes)
        self.n_bytes = base.n_bytes + sum(plane.n_residual_bytes for plane in planes)
        found = "the kernel was not wanted" if use_kernel is False else _usable_kernel(planes)
        if use_kernel and isinstance(found, str):
            raise UsageError(found)
        self._kernel = found if isinstance(found, Kernel) else None
        self.way = found.name if isinstance(found, Kernel) else f"without a kernel: {found}"

    @property
    def vocab(self) -> NativeVocab:
        """The vocabulary, the base's."""
        return self.base.vocab

    def context(self, params: ContextParams) -> NativeContext:
        """Makes a context that computes with both planes. Raises ContextError."""
        made = KernelHook(self._kernel, self._files) if self._kernel else PlainHook(self._files, params.n_threads)
        hook: Hook = made
        return HookedContext(self.base.model.handle, params, hook, name=self.path.name)

    def close(self) -> None:
        """Frees the mapping and this share of the base; close contexts first. Twice is fine."""
        self.base.close()

    def __enter__(self) -> NestedModel:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _usable_kernel(planes: Sequence[Plane]) -> Kernel | str:
    if any(plane.kind != TIED for plane in planes):
        return "the kernel computes tied residuals only"
    return kernel()
