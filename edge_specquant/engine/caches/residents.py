"""Models in memory, by variant: loaded when first needed, kept, evicted when somebody says so.

Each resident keeps one KV cache per session that uses it; eviction frees contexts before weights. Knows no prompts and
no budget: who may stay is decided where it is known who is idle.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...native.protocol import Context, ContextParams, Model
from .kv_cache import KVCache

Loader = Callable[[str], Model]


@dataclass(slots=True)
class Resident:
    """A loaded model and the contexts made on it.

    load_s is what loading it cost (the swap cost), used_at when it was last asked for (time.monotonic).
    """

    name: str
    model: Model
    n_bytes: int
    load_s: float
    contexts: list[Context] = field(default_factory=list)
    used_at: float = 0.0

    def open_cache(self, params: ContextParams) -> KVCache:
        """A new context, wrapped. Raises ContextError."""
        context = self.model.context(params)
        self.contexts.append(context)
        return KVCache(context)

    def open_head(self, params: ContextParams) -> Context:
        """A context of the model's next-token layers. Raises ContextError."""
        context = self.model.context(replace(params, is_mtp=True, max_rows=1))
        self.contexts.append(context)
        return context

    def close(self) -> None:
        """Frees contexts, then weights."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()
        self.model.close()


class Residents:
    """The models of one family that are in memory; sizes come from `size_of`.

    n_evicted counts evictions; swap_s: seconds spent on loading again what had been evicted.
    """

    def __init__(self, loader: Loader, size_of: Callable[[str], int]) -> None:
        self._loader = loader
        self._size_of = size_of
        self._held: OrderedDict[str, Resident] = OrderedDict()
        self._evicted: set[str] = set()
        self.n_evicted = 0
        self.swap_s = 0.0
        self._loading = threading.RLock()

    def get(self, name: str) -> Resident:
        """The resident, loaded if need be. Raises ModelLoadError.

        From any thread: two who ask for the same model get the same one.
        """
        with self._loading:
            found = self._held.get(name)
            if found is None:
                begun = time.perf_counter()
                model = self._loader(name)
                found = Resident(name, model, self._size_of(name), time.perf_counter() - begun)
                self._held[name] = found
                self.swap_s += found.load_s if name in self._evicted else 0.0
            found.used_at = time.monotonic()
            self._held.move_to_end(name)
            return found

    def held(self) -> tuple[Resident, ...]:
        """What is in memory, least recently used first."""
        return tuple(self._held.values())

    def evict(self, name: str) -> None:
        """Frees one resident; unknown names are fine. Nobody may be using it."""
        with self._loading:
            found = self._held.pop(name, None)
            if found is not None:
                found.close()
                self._evicted.add(name)
                self.n_evicted += 1

    def close(self) -> None:
        """Frees everything."""
        for name in list(self._held):
            self._held.pop(name).close()
