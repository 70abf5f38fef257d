"""One loaded base for the draft and the target of a nested pair, whichever of them is asked for first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ...gguf.family.family import Family, Variant
from ...gguf.nested.nested import BASE, NESTED
from ...gguf.nested.nested_open import BASE_USES_MMAP, open_nested
from ...native.model import NativeModel
from ...native.nested.nested import NestedModel, SharedModel


class Bases:
    """Loads a family's base once. When draft and target are both closed, it is freed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: SharedModel | None = None

    def open(
        self, family: Family, variant: str, load: Callable[[Path, bool], NativeModel], *, use_kernel: bool = True
    ) -> SharedModel | NestedModel:
        """The base as a model of its own, or with its residual; load(path, use_mmap).

        Raises FamilyError, GGUFError, ModelLoadError, and UsageError when the base is on a GPU.
        """
        base, residual = family.path(BASE), family.path(NESTED)
        with self._lock:
            if self._shared is None or not self._shared.is_loaded:
                share = self._shared = SharedModel(load(base, BASE_USES_MMAP))
            else:
                share = self._shared.share()
        return open_nested(residual, share, use_kernel=use_kernel and None) if variant == NESTED else share


def is_of_pair(variant: str, variants: Mapping[str, Variant]) -> bool:
    """Whether this name is the base or the target of a nested pair among these siblings."""
    return variant in (BASE, NESTED) and {BASE, NESTED} <= variants.keys()
