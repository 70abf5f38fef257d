"""Opens any file of a family: an ordinary model, or the residual of a nested pair together with its base."""

from __future__ import annotations

from pathlib import Path

from ...native.model import NativeModel
from ...native.nested.nested import NestedModel, SharedModel
from ...native.opening import open_model
from ..family.family import Family
from ..format.container import read_container
from .nested import NESTED, is_residual, read_planes

BASE_USES_MMAP = False
"""The engine repacks a Q4_0 base into memory of its own: a mapping of the file beside it would be held twice."""


def open_nested(residual: Path, base: SharedModel | None = None, *, use_kernel: bool | None = None) -> NestedModel:
    """The target of a nested pair, on its own base or a share of a loaded one, which it takes over.

    Raises GGUFError when the files do not belong together, ModelLoadError.
    """
    base_path, planes = read_planes(residual)
    shared = base or SharedModel(open_model(base_path, use_mmap=BASE_USES_MMAP))
    try:
        return NestedModel(shared, residual, planes, use_kernel=use_kernel)
    except BaseException:
        shared.close()
        raise


def open_sibling(
    family: Family,
    name: str,
    *,
    n_gpu_layers: int = 0,
    use_extra_bufts: bool | None = None,
    use_kernel: bool = True,
) -> NativeModel | NestedModel:
    """A sibling of its own, outside any runtime: both siblings of a nested pair as a runtime would compute them.

    Raises FamilyError, GGUFError, ModelLoadError.
    """
    path = family.path(name)
    if name == NESTED:
        return open_any(path)
    return open_model(path, n_gpu_layers=n_gpu_layers, use_extra_bufts=use_extra_bufts, use_kernel=use_kernel)


def open_any(path: Path) -> NativeModel | NestedModel:
    """A model by whichever of its files the manifest names. Raises GGUFError, ModelLoadError."""
    return open_nested(path) if is_residual(read_container(path)) else open_model(path)
