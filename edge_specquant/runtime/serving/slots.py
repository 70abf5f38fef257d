"""Who writes replies: one session a slot, each with its caches and snapshots. Several slots share models and contexts.

A new reply goes to the free slot whose cache begins most like its prompt. Where there are several, one more slot, on
contexts of its own, is for replies that no neighbour may round differently. Knows no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...engine.caches.residents import Resident, Residents
from ...engine.caches.snapshots import Snapshots
from ...engine.parallel.batching import SharedModels
from ...engine.session import Session
from ...native.protocol import Model

MakeSession = Callable[[Residents, Snapshots], Session]


class Slot:
    """One session and what it holds."""

    def __init__(self, residents: Residents, snapshots: Snapshots, session: Session) -> None:
        self.residents = residents
        self.snapshots = snapshots
        self.session = session
        self.is_busy = False


class Slots:
    """n slots over one set of models, and the lone one. snapshots() makes a slot's own; callers keep two threads from
    one slot.
    """

    def __init__(
        self,
        n: int,
        load: Callable[[str], Model],
        size_of: Callable[[str], int],
        snapshots: Callable[[], Snapshots],
        make_session: MakeSession,
    ) -> None:
        self._shared = SharedModels(load, n) if n > 1 else None
        self.all: list[Slot] = []
        for number in range(n + 1 if n > 1 else 1):
            residents = Residents(self._loader(number, load), size_of)
            kept = snapshots() if number < n else Snapshots(0)  # exact replies take nobody's cells
            self.all.append(Slot(residents, kept, make_session(residents, kept)))
        self._lone = self.all[-1]
        self._common = self.all[:n]

    def take(self, target: str, prompt: Sequence[int], *, is_alone: bool = False) -> Slot:
        """A free slot, the one that saves most of the prompt, or the lone one; it is busy from now on."""
        free = [slot for slot in ([self._lone] if is_alone else self._common) if not slot.is_busy]
        slot = free[0] if len(free) == 1 else max(free, key=lambda slot: slot.session.n_shared(target, prompt))
        slot.is_busy = True
        return slot

    def names_by_age(self) -> list[str]:
        """The models in memory, least recently used first."""
        used: dict[str, float] = {}
        for resident in (resident for slot in self.all for resident in slot.residents.held()):
            used[resident.name] = max(used.get(resident.name, 0.0), resident.used_at)
        return sorted(used, key=lambda name: used[name])

    def idle_with(self, mine: Session) -> list[Session]:
        """Whose models may be touched by the owner of this session: it, and those that write nothing."""
        return [slot.session for slot in self.all if slot.session is mine or not slot.is_busy]

    @property
    def n_evicted(self) -> int:
        """Siblings freed for others, in all slots."""
        return sum(slot.residents.n_evicted for slot in self.all)

    @property
    def swap_s(self) -> float:
        """Seconds spent on loading again what had been freed."""
        return sum(slot.residents.swap_s for slot in self.all)

    def model(self, name: str) -> Model:
        """A model's vocabulary and template, for whoever has no slot."""
        return self.all[0].residents.get(name).model

    def held(self) -> tuple[Resident, ...]:
        """The models in memory, each once."""
        return tuple({resident.name: resident for slot in self.all for resident in slot.residents.held()}.values())

    def n_cached(self, name: str) -> int:
        """Tokens held for this model in all slots."""
        return sum(slot.session.n_cached(name) for slot in self.all)

    def keep(self) -> None:
        """Writes what the slots hold to the snapshot files."""
        for slot in self.all:
            slot.session.keep()

    def close(self) -> None:
        """Frees contexts, then models; twice is fine."""
        for slot in self.all:
            slot.residents.close()
        if self._shared is not None:
            self._shared.close()

    def _loader(self, number: int, load: Callable[[str], Model]) -> Callable[[str], Model]:
        shared = self._shared
        return load if shared is None else lambda name: shared.view(name, number)
