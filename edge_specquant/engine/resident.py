"""Models in memory, by variant: loaded when first needed, shared, evicted least recently used within a byte budget.

Each resident keeps one KV cache per session that uses it; eviction frees contexts before weights. Knows no prompts.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import ContextError
from ..native.protocol import Context, ContextParams, Model
from .kv_cache import KVCache

Loader = Callable[[str], Model]


@dataclass(slots=True)
class Resident:
    """A loaded model and the contexts made on it. load_s is what loading it cost (the swap cost)."""

    name: str
    model: Model
    n_bytes: int
    load_s: float
    contexts: list[Context] = field(default_factory=list)

    def open_cache(self, params: ContextParams) -> KVCache:
        """A new context, wrapped. Raises ContextError."""
        context = self.model.context(params)
        self.contexts.append(context)
        return KVCache(context)

    def close(self) -> None:
        """Frees contexts, then weights."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()
        self.model.close()


class Residents:
    """The models of one family that are in memory. budget None never evicts; sizes come from `size_of`."""

    def __init__(self, loader: Loader, size_of: Callable[[str], int], budget: int | None = None) -> None:
        self._loader = loader
        self._size_of = size_of
        self.budget = budget
        self._held: OrderedDict[str, Resident] = OrderedDict()
        self.n_evicted = 0
        self._loading = threading.RLock()

    def get(self, name: str, *, keep: frozenset[str] = frozenset()) -> Resident:
        """The resident, loaded if need be; never evicts those in `keep`. Raises ModelLoadError.

        From any thread: two who ask for the same model get the same one.
        """
        with self._loading:
            found = self._held.get(name)
            if found is None:
                self._make_room(self._size_of(name), keep)
                begun = time.perf_counter()
                model = self._loader(name)
                found = Resident(name, model, self._size_of(name), time.perf_counter() - begun)
                self._held[name] = found
            self._held.move_to_end(name)
            return found

    def held(self) -> tuple[Resident, ...]:
        """What is in memory, least recently used first."""
        return tuple(self._held.values())

    def evict(self, name: str) -> None:
        """Frees one resident; unknown names are fine."""
        found = self._held.pop(name, None)
        if found is not None:
            found.close()
            self.n_evicted += 1

    def close(self) -> None:
        """Frees everything."""
        for name in list(self._held):
            self._held.pop(name).close()

    def _make_room(self, n_bytes: int, keep: frozenset[str]) -> None:
        if self.budget is None:
            return
        for name in [name for name in self._held if name not in keep]:
            if sum(resident.n_bytes for resident in self._held.values()) + n_bytes <= self.budget:
                return
            self.evict(name)
        held = sum(resident.n_bytes for resident in self._held.values())
        if held + n_bytes > self.budget:
            raise ContextError(
                f"{n_bytes} bytes of weights do not fit beside {held} in a budget of {self.budget} bytes; "
                "try a smaller sibling"
            )
