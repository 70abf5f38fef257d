"""One conversation's engine side: a KV cache per sibling, reused from reply to reply, and the drafters over them.

Any sibling may be the target of one reply and the draft of the next; each cache simply holds what it last saw, and the
longest common prefix is reused. Knows nothing of text or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import VocabularyError
from ..native.protocol import ContextParams, Model
from ..params import SamplingParams, SpeculationParams
from .draft import Drafter, NoDrafter
from .draft_length import Controller, Fixed
from .events import TokenEvent
from .kv_cache import KVCache, OnProgress
from .lookup import LookupDrafter
from .model_drafter import ModelDrafter
from .redo import RedoController, RedoDrafter
from .resident import Residents
from .sampling import TokenSampler
from .snapshots import Snapshots
from .stream import Job, stream

DEFAULT_N_DRAFT = 3


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """One reply, in tokens: who writes it, who drafts, under which rules."""

    prompt: Sequence[int]
    target: str
    draft: str
    sampling: SamplingParams
    speculation: SpeculationParams
    max_tokens: int | None = None
    min_tokens: int = 0
    stops: Sequence[str] = ()
    on_prefill: OnProgress | None = None
    earlier_reply: Sequence[int] = ()


class Session:
    """Caches over residents. context_params(variant) sizes a sibling's context; snapshots keep branches left behind."""

    def __init__(
        self,
        residents: Residents,
        context_params: Callable[[str], ContextParams],
        snapshots: Snapshots | None = None,
    ) -> None:
        self._residents = residents
        self._context_params = context_params
        self._snapshots = Snapshots(0) if snapshots is None else snapshots
        self._stopped = False
        self._targets: set[str] = set()
        self._caches: dict[str, tuple[Model, KVCache]] = {}
        self.notices: list[str] = []

    def reply(self, plan: ReplyPlan) -> Iterator[TokenEvent]:
        """Streams one reply. Raises VocabularyError, ModelLoadError, ContextError."""
        self.notices = []
        model, target = self._cache(plan.target, plan)
        self._targets.add(plan.target)
        self.notices += self._snapshots.prepare(plan.target, target, plan.prompt, can_truncate=model.can_truncate)
        drafter = self._drafter(plan, model, target)
        sampler = TokenSampler(
            plan.sampling,
            target.context.n_vocab,
            eog_tokens=model.vocab.eog_tokens,
            min_tokens=plan.min_tokens,
            vocab_handle=getattr(model.vocab, "handle", None),
            n_ctx=target.n_ctx,
        )
        controller = _controller(plan.speculation, drafter)
        if plan.earlier_reply and model.can_truncate:
            drafter = RedoDrafter(plan.earlier_reply, drafter)
            controller = RedoController(drafter, controller, target.context.max_rows - 1)
        job = Job(
            prompt=plan.prompt,
            target=target,
            drafter=drafter,
            controller=controller,
            sampler=sampler,
            vocab=model.vocab,
            max_tokens=plan.max_tokens,
            stops=plan.stops,
            accept=plan.speculation.accept,
            on_prefill=plan.on_prefill,
        )
        yield from stream(job)

    def cancel(self) -> None:
        """Stops the running reply within a graph node; call from any thread."""
        self._stopped = True
        for _, cache in tuple(self._caches.values()):
            cache.context.abort()

    def resume(self) -> None:
        """Lets decodes run again after a cancel."""
        self._stopped = False
        for _, cache in self._caches.values():
            cache.context.resume()

    def n_cached(self, name: str) -> int:
        """Tokens the sibling's cache holds."""
        known = self._caches.get(name)
        return known[1].n_past if known else 0

    def keep(self) -> None:
        """Writes the branches held, the ones in the caches too, to the snapshot files if there are any."""
        for resident in self._residents.held():
            if resident.name in self._targets and self._caches[resident.name][0] is resident.model:
                self._snapshots.keep(resident.name, self._caches[resident.name][1])
        self._snapshots.flush()

    def _cache(self, name: str, plan: ReplyPlan, *, second: bool = False) -> tuple[Model, KVCache]:
        """The sibling's cache; a second one for a model that drafts for itself."""
        resident = self._residents.get(name, keep=frozenset({plan.target, *plan.draft.split("+")}))
        key = f"{name} again" if second else name
        known = self._caches.get(key)
        if known is None or known[0] is not resident.model:
            known = self._caches[key] = (resident.model, resident.open_cache(self._context_params(name)))
            if self._stopped:  # the cancel came before this context was there to see it
                known[1].context.abort()
        return known

    def _drafter(self, plan: ReplyPlan, target_model: Model, target: KVCache) -> Drafter:
        if plan.draft == "none" or plan.speculation.n_draft == 0:
            return NoDrafter()
        if not target_model.can_truncate:
            self.notices.append(f"no draft: the KV cache of {plan.target} cannot drop rejected tokens")
            return NoDrafter()
        if plan.draft == "lookup":
            return LookupDrafter()
        model, cache = self._cache(plan.draft, plan, second=plan.draft == plan.target)
        if ":" in plan.draft:  # siblings were proven equal when the family was opened
            require_same_vocabulary(target_model, model)
        return ModelDrafter(
            plan.draft,
            cache,
            n_vocab=min(target.context.n_vocab, cache.context.n_vocab),
            target=target,
            wants_distributions=plan.speculation.accept == "rejection",
        )


def require_same_vocabulary(target: Model, draft: Model) -> None:
    """Compares token by token; padding rows beyond the smaller vocabulary are allowed. Raises VocabularyError."""
    for token in range(min(target.vocab.n_tokens, draft.vocab.n_tokens)):
        ours, theirs = (model.vocab.piece(token, special=True) for model in (target, draft))
        if ours != theirs:
            raise VocabularyError(
                f"the draft's vocabulary differs from the target's: token {token} is {theirs!r}, not {ours!r}; "
                "choose a draft of the same family"
            )


def _controller(speculation: SpeculationParams, drafter: Drafter) -> Controller:
    if isinstance(drafter, NoDrafter):
        return Fixed(0)
    return Fixed(DEFAULT_N_DRAFT if speculation.n_draft is None else speculation.n_draft)
