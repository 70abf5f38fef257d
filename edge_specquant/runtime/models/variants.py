"""How a family's siblings are loaded and how large their contexts are, under the plan in force.

Knows files and the plan; knows neither replies nor who is in memory.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import ModelLoadError
from ...gguf.family.family import Family
from ...gguf.family.guests import any_variant, is_guest, proven_path, require_same_ids
from ...gguf.format.header import n_nextn_layers, read_card
from ...native.model import NativeModel
from ...native.opening import open_model
from ...native.protocol import DEFAULT_N_BATCH, DEFAULT_N_ROLLBACK, ContextParams, Model, Progress
from ...params import MAX_DRAFT
from ..options import EngineOptions
from .shared_bases import Bases, is_of_pair
from .under_plan import Planned


class Variants:
    """Opens siblings by name. Layers, mapping, KV types and context lengths are the plan's where nobody said."""

    def __init__(self, family: Family, options: EngineOptions, planned: Planned) -> None:
        self._family = family
        self._options = options
        self._planned = planned
        self._bases = Bases()

    def open(self, variant: str, progress: Progress) -> Model:
        """A loaded model; where a GPU cannot hold it, with fewer layers there. Raises FamilyError, ModelLoadError."""
        use_kernel = self._options.use_kernel
        if is_of_pair(variant, self._family.variants):
            return self._bases.open(
                self._family,
                variant,
                lambda path, use_mmap: self._load(variant, path, progress, use_mmap=use_mmap),
                use_kernel=use_kernel,
            )
        while True:
            try:
                return self._load(variant, self._path(variant), progress, use_mmap=self._planned.use_mmap)
            except ModelLoadError:
                # Only what a GPU could not hold is worth another try; a cancelled load is not.
                if not self._planned.layers(variant)[0] or not progress(0.0) or not self._planned.give_way(variant):
                    raise

    def params(self, n_ctx_train: int | None) -> ContextParams:
        """A context of a sibling that was trained on so many tokens."""
        n_ctx = self._planned.n_ctx(n_ctx_train)
        type_k, type_v = self._planned.kv_types
        return ContextParams(
            n_ctx=n_ctx,
            n_batch=min(self._options.n_batch or DEFAULT_N_BATCH, n_ctx),
            max_rows=1 + MAX_DRAFT,
            n_threads=self._options.n_threads,
            type_k=type_k,
            type_v=type_v,
            n_rollback=0 if self._options.draft == "none" else DEFAULT_N_ROLLBACK,
        )

    def n_file_bytes(self, variant: str) -> int:
        """Bytes of a sibling's own file."""
        return any_variant(self._family, variant).n_bytes

    def n_bytes(self, variant: str) -> int:
        """Bytes it takes with its context, as planned; of the file alone where the plan has no place for it."""
        planned = self._planned.n_bytes(variant)
        if planned is not None:
            return planned
        return self.n_file_bytes(variant) if variant in self._family.variants or is_guest(variant) else 0

    def _path(self, variant: str) -> Path:
        """The proven file; a guest's ids are compared with the family's first. Raises VocabularyError."""
        path = proven_path(self._family, variant)
        if is_guest(variant):
            ours = next(iter(self._family.variants.values())).path
            require_same_ids(read_card(ours), read_card(path))
        return path

    def _load(self, variant: str, path: Path, progress: Progress, *, use_mmap: bool) -> NativeModel:
        n_gpu_layers, tensor_split = self._planned.layers(variant)
        return open_model(
            path,
            n_gpu_layers=n_gpu_layers,
            tensor_split=tensor_split,
            use_mmap=use_mmap,
            use_mlock=self._planned.use_mlock,
            use_extra_bufts=self._options.use_extra_bufts,
            use_kernel=self._options.use_kernel,
            load_mtp=n_nextn_layers(path) > 0,
            progress=progress,
        )
