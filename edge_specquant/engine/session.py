"""One conversation's engine side: a KV cache per sibling, reused from reply to reply, and the drafters over them.

Any sibling may be the target of one reply and the draft of the next; each cache simply holds what it last saw, and the
longest common prefix is reused. Knows nothing of text or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..errors import ContextError, ModelLoadError, VocabularyError
from ..gguf.family.guests import is_guest
from ..native.protocol import Context, ContextParams, Model
from ..params import NOT_SIBLINGS, SamplingParams, SpeculationParams
from .caches.certificate import Certificate
from .caches.certificate_files import certificate
from .caches.kv_cache import KVCache, OnProgress
from .caches.residents import Resident, Residents
from .caches.snapshots import Snapshots
from .constraint import Constraint, Constraints
from .control.cascade import best_gain, riders
from .control.costs import Costs, Curve, Line
from .control.draft_length import Controller, Entropy, Fixed
from .control.goodput import Goodput
from .control.prices import Joules, Power, Price
from .control.speckv.speckv import SpecKV, find_predictor
from .control.traces import TraceFile
from .drafters.draft import Drafter
from .drafters.grammar import GrammarDrafter
from .drafters.lookup import LookupDrafter
from .drafters.model_drafter import ModelDrafter
from .drafters.mtp_drafter import MTP, HeadCells, HiddenStates, MtpDrafter
from .drafters.portfolio import Portfolio
from .drafters.redo import RedoController, RedoDrafter
from .drafters.row_reader import RowReader
from .events import TokenEvent
from .prompts.shorten import Shorten
from .sampling import TokenSampler
from .stream import FORGETS, Job, stream
from .structured.form import Form
from .thoughts.parts import Parts
from .thoughts.sampler import ThoughtSampler

DEFAULT_N_DRAFT = 3
ENTROPY_LONGEST = 16
LOOKUP = "lookup"
# Where attention is the engine's, it goes in another order for single tokens from 512 cells on, and for batches of 64
# and more (ggml-cpu/ops.cpp, ggml_compute_forward_flash_attn_ext_f16); a certificate on a short text sees neither.
# Cells come by 256, so 512 are looked at from the 257th on. Prompts are read in whole strips of the kernel.
_NARROWEST = 2
_SINGLES_UNTIL = 256
_STRICT_BATCH = 48
WORTH_LOADING = 1.03  # what a perfect draft must gain before a sibling is loaded to draft


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
    draft_is_wish: bool = True
    form: Form | None = None
    n_logprobs: int | None = None
    n_prompt_logprobs: int | None = None
    shorten: Shorten | None = None
    parts: Parts | None = None


CurvesOf = Callable[[str], "tuple[Curve, Curve] | None"]
"""A sibling's measured cost as target and as draft, by name."""

PowerOf = Callable[[str], "tuple[Power | None, str]"]
"""A sibling's measured watts by name, or None and why they are unknown."""

CertificateOf = Callable[[str, Model, KVCache], Certificate]
"""The certificate of a target; may empty its cache to measure."""


def _no_curves(name: str) -> None:
    del name


@dataclass(frozen=True, slots=True)
class _Head:
    """A target's next-token layer: the cache whose hidden states it reads, its own cells, what its forwards cost."""

    target: KVCache
    cells: HeadCells
    curve: Line


class Session:
    """Caches over residents. context_params(variant) sizes a sibling's context; snapshots keep branches left behind.

    on_open(name, cache) sees each new cache while it is empty. curves and certificates come from whoever knows the
    files; without them costs are learnt and strict measures anew. traces: where every round is recorded. power: given
    where drafts are to save joules instead of seconds. give_way(name) is asked after a target's context could not be
    made: True says that another try, with less, is worth it. constraints: the family's, shared by its sessions.
    """

    def __init__(
        self,
        residents: Residents,
        context_params: Callable[[str], ContextParams],
        snapshots: Snapshots | None = None,
        *,
        curves: CurvesOf = _no_curves,
        certificate: CertificateOf | None = None,
        on_open: Callable[[str, KVCache], None] | None = None,
        traces: TraceFile | None = None,
        power: PowerOf | None = None,
        give_way: Callable[[str], bool] | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        self._residents = residents
        self._context_params = context_params
        self._snapshots = Snapshots(0) if snapshots is None else snapshots
        self._curves = curves
        self._known_costs: dict[str, Costs] = {}
        self._on_open = on_open
        self._traces = traces
        self._power = power
        self._certificate = certificate or _measure_certificate
        self._stopped = False
        self._targets: set[str] = set()
        self._left_out: set[str] = set()
        self._failed: set[str] = set()
        self._give_way = give_way
        self._constraints = constraints or Constraints()
        self._caches: dict[str, tuple[Model, KVCache]] = {}
        self._heads: dict[str, _Head] = {}
        self.notices: list[str] = []

    def reply(self, plan: ReplyPlan) -> Iterator[TokenEvent]:
        """Streams one reply. Raises VocabularyError, ModelLoadError, ContextError."""
        self.notices = []
        model, target = self._cache(plan.target, plan)
        self._targets.add(plan.target)
        plan = self._strictly(plan, model, target)
        note = None
        if plan.shorten and len(plan.prompt) >= target.n_ctx:
            shorter = plan.shorten(plan.prompt, len(plan.prompt), target.n_ctx)
            if shorter is not None:
                plan, note = replace(plan, prompt=shorter[0]), FORGETS
        if not plan.speculation.strict:  # who knows which widths wrote a snapshot's cells
            self.notices += self._snapshots.prepare(plan.target, target, plan.prompt)
        costs = self._costs(plan)
        costs.company = getattr(target.context, "company", lambda: 0)
        history: list[int] = []
        costs.pending = lambda: len(history) - target.n_past
        costs.undo_s = target.undo_s
        costs.begin_round()
        widest = target.context.max_rows - 1
        controller = self._controller(plan, costs, widest)
        if plan.parts is not None and plan.form is not None:
            plan.parts.bind()
        make = TokenSampler if plan.parts is None else partial(ThoughtSampler, parts=plan.parts)
        sampler = make(
            plan.sampling,
            target.context.n_vocab,
            constraint=self._constraint(plan, model),
            eog_tokens=model.vocab.eog_tokens,
            min_tokens=plan.min_tokens,
            vocab_handle=getattr(model.vocab, "handle", None),
            n_ctx=target.n_ctx,
        )
        drafter: Drafter = Portfolio(self._drafters(plan, model, target, costs, sampler), controller.choose)
        if plan.earlier_reply and target.can_undo:
            redo = RedoDrafter(plan.earlier_reply, drafter)
            drafter, controller = redo, RedoController(redo, controller, widest)
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
            n_logprobs=plan.n_logprobs,
            n_prompt_logprobs=plan.n_prompt_logprobs,
            shorten=plan.shorten,
            note=note,
            history=history,
            parts=plan.parts,
            on_round=self._traces.recorder(plan.target, self._n_bytes) if self._traces else None,
        )
        if plan.speculation.pad and costs.is_calibrated and target.context.can_truncate:
            job.width = costs.padded
        yield from stream(job)

    def cancel(self) -> None:
        """Stops the running reply within a graph node; call from any thread."""
        self._stopped = True
        for context in self._contexts():
            context.abort()

    def resume(self) -> None:
        """Lets decodes run again after a cancel."""
        self._stopped = False
        for context in self._contexts():
            context.resume()

    def _contexts(self) -> tuple[Context, ...]:
        heads = tuple(head.cells.context for head in tuple(self._heads.values()))
        return (*(cache.context for _, cache in tuple(self._caches.values())), *heads)

    def n_cached(self, name: str) -> int:
        """Tokens the sibling's cache holds."""
        known = self._caches.get(name)
        return known[1].n_past if known else 0

    def n_shared(self, name: str, prompt: Sequence[int]) -> int:
        """Leading tokens of the prompt that the sibling's cache holds."""
        known = self._caches.get(name)
        return known[1].shared_prefix(prompt) if known else 0

    def forget(self, name: str) -> None:
        """Frees a sibling and its cells; it is loaded again when it is needed. Not while a reply uses it."""
        for key in (name, f"{name} again"):
            self._caches.pop(key, None)
        self._heads.pop(name, None)
        self._residents.evict(name)

    def leave_out(self, name: str) -> None:
        """Frees a sibling for good: it drafts no more, unless it is asked for by name."""
        self._failed.add(name)
        self.forget(name)

    def leave_out_only(self, names: set[str]) -> None:
        """For now these siblings do not draft, unless they are asked for by name; others may."""
        self._left_out = set(names)

    def keep(self) -> None:
        """Writes the branches held, the ones in the caches too, to the snapshot files if there are any."""
        for resident in self._residents.held():
            known = self._caches.get(resident.name)
            if resident.name in self._targets and known is not None and known[0] is resident.model:
                self._snapshots.keep(resident.name, known[1])
        self._snapshots.flush()

    def _cache(self, name: str, plan: ReplyPlan, *, second: bool = False) -> tuple[Model, KVCache]:
        """The sibling's cache; a second one for a model that drafts for itself."""
        key = f"{name} again" if second else name
        resident = self._residents.get(name)
        known = self._caches.get(key)
        if known is None or known[0] is not resident.model:
            opened = self._open(name, resident, is_target=name == plan.target and not second)
            known = self._caches[key] = opened
            if self._on_open and not second:
                self._on_open(name, known[1])
            if self._stopped:  # the cancel came before this context was there to see it
                known[1].context.abort()
        return known

    def _open(self, name: str, resident: Resident, *, is_target: bool) -> tuple[Model, KVCache]:
        """A new context; where memory is short for a target's, smaller ones are tried. Raises ContextError."""
        while True:
            try:
                return resident.model, resident.open_cache(self._context_params(name))
            except ContextError:
                if not is_target or self._give_way is None or not self._give_way(name):
                    raise
            resident = self._residents.get(name)  # with fewer layers away it was loaded again

    def _constraint(self, plan: ReplyPlan, model: Model) -> Constraint | None:
        return None if plan.form is None else self._constraints.constraint(plan.form, model.vocab)

    # -- drafters ---------------------------------------------------------------------------------------------------

    def _controller(self, plan: ReplyPlan, costs: Costs, widest: int) -> Controller:
        wish = plan.speculation
        if wish.n_draft is not None or wish.controller == "fixed":
            return Fixed(DEFAULT_N_DRAFT if wish.n_draft is None else wish.n_draft)
        if plan.draft == "none":
            return Fixed(0)
        if wish.controller == "entropy":
            return Entropy(min(widest, ENTROPY_LONGEST))
        if wish.controller == "speckv":
            predictor = find_predictor()
            if predictor is not None:
                return SpecKV(predictor, costs, widest, partial(self._compression, plan.target))
            self.notices.append("speckv: no network was trained yet (edge-specquant gamma train); goodput decides")
        return Goodput(costs, widest, self._price(plan))

    def _price(self, plan: ReplyPlan) -> Price | None:
        """Joules where they are wanted and known; a notice where they are wanted only."""
        if self._power is None:
            return None
        target, why = self._power(plan.target)
        if target is None:
            self.notices.append(f"drafts save seconds, not joules: {why}")
            return None
        siblings = [name for name in plan.draft.split("+") if name not in NOT_SIBLINGS]
        return Joules(target, {name: power for name in siblings if (power := self._power(name)[0]) is not None})

    def _compression(self, target: str, draft: str) -> float:
        """The draft's weights in bytes over the target's; 1 where either is unknown."""
        ours, theirs = self._n_bytes(target), self._n_bytes(draft)
        return theirs / ours if ours and theirs else 1.0

    def _n_bytes(self, name: str) -> int | None:
        return next((resident.n_bytes for resident in self._residents.held() if resident.name == name), None)

    def _drafters(
        self, plan: ReplyPlan, target_model: Model, target: KVCache, costs: Costs, sampler: TokenSampler
    ) -> list[Drafter]:
        """In the order of preference; a sibling that cannot pay here is left out unless it was asked for by name.

        What the form forces comes first: it is free and nearly always right.
        """
        if plan.draft == "none" or plan.speculation.n_draft == 0:
            return []
        if not target.can_undo:
            self.notices.append(f"no draft: the memory of {plan.target} can neither drop rejected tokens nor be saved")
            return []
        made: list[Drafter] = [GrammarDrafter(sampler)] if plan.form is not None else []
        for name in plan.draft.split("+"):
            if name == LOOKUP:
                made.append(LookupDrafter())
            elif name == MTP:
                made += self._mtp_drafter(plan, target, costs)
            elif name == GrammarDrafter.name or (name in self._left_out | self._failed and not plan.draft_is_wish):
                continue
            elif plan.draft_is_wish or not costs.knows(name) or best_gain(costs, name) >= WORTH_LOADING:
                made += self._if_it_fits(name, plan, target_model, target)
            else:
                self.notices.append(f"{name} does not draft: even a perfect draft would not pay on this machine")
        return made

    def _if_it_fits(self, name: str, plan: ReplyPlan, target_model: Model, target: KVCache) -> list[Drafter]:
        """The sibling as drafter; where there is no memory for it, this reply and those after it go on without."""
        try:
            return [self._model_drafter(name, plan, target_model, target)]
        except (ContextError, ModelLoadError) as error:
            if self._stopped or name == plan.target:
                raise
            self.notices.append(f"{name} does not draft: {error}")
            self.leave_out(name)
            return []

    def _model_drafter(self, name: str, plan: ReplyPlan, target_model: Model, target: KVCache) -> Drafter:
        model, cache = self._cache(name, plan, second=name == plan.target)
        from_elsewhere = is_guest(name)
        if from_elsewhere:  # siblings were proven equal when the family was opened, and share the shape of their cells
            require_same_vocabulary(target_model, model)
        curves = self._curves(name)
        rides = LOOKUP in plan.draft and cache.context.can_truncate  # each guess that failed would cost it a state
        return ModelDrafter(
            name,
            cache,
            n_vocab=min(target.context.n_vocab, cache.context.n_vocab),
            target=target if plan.speculation.transplant and not from_elsewhere else None,
            wants_distributions=plan.speculation.accept == "rejection" and not plan.sampling.greedy,
            wants_entropy=plan.speculation.controller in ("entropy", "speckv") or self._traces is not None,
            ride_along=partial(riders, curves[0]) if curves and rides else None,
        )

    def _mtp_drafter(self, plan: ReplyPlan, target: KVCache, costs: Costs) -> list[Drafter]:
        """The target's own next-token layer as drafter; a notice where there is none that can."""
        try:
            head = self._head(plan, target)
        except ContextError as error:
            head = str(error)
        if isinstance(head, str):
            if plan.draft_is_wish:
                self.notices.append(f"mtp does not draft: {head}")
            return []
        costs.learn_curve(MTP, head.curve)
        reader = RowReader(
            MTP,
            target.context.n_vocab,
            wants_distributions=plan.speculation.accept == "rejection" and not plan.sampling.greedy,
            wants_entropy=plan.speculation.controller in ("entropy", "speckv") or self._traces is not None,
        )
        return [MtpDrafter(head.cells, reader, target.context.n_vocab)]

    def _head(self, plan: ReplyPlan, target: KVCache) -> _Head | str:
        """The target's head, opened and timed once, or why there is none. Raises ContextError."""
        known = self._heads.get(plan.target)
        if known is not None and known.target is target:
            return known
        resident = self._residents.get(plan.target)
        n_layers = getattr(resident.model, "n_nextn", 0)
        if n_layers != 1:
            return f"{plan.target} was loaded with {n_layers or 'no'} next-token layers; it takes one"
        states = HiddenStates(target.context.n_embd)
        if not target.watch_hidden(states.watch):
            return "this engine shows no hidden states here; they are read of one reply at a time"
        context = resident.open_head(self._context_params(plan.target))
        if self._stopped:
            context.abort()
        cells = HeadCells(context, states)
        made = self._heads[plan.target] = _Head(target, cells, Line(*cells.time_a_step()))
        return made

    def _costs(self, plan: ReplyPlan) -> Costs:
        """What is learnt about this machine outlives the reply; what is learnt about the text does not."""
        key = f"{plan.target} {plan.draft}"
        if key in self._known_costs:
            return self._known_costs[key]
        names = [name for name in plan.draft.split("+") if name not in NOT_SIBLINGS]
        target = self._curves(plan.target)
        drafts = {name: curves[1] for name in names if (curves := self._curves(name)) is not None}
        made = Costs(target[0] if target else None, drafts)
        if target and len(drafts) == len(names):  # else a sibling is about to be measured
            self._known_costs[key] = made
        return made

    def _strictly(self, plan: ReplyPlan, model: Model, target: KVCache) -> ReplyPlan:
        """Sets the widths of a reply. A strict one keeps to those that agree; where none do, the same forwards are made
        whatever came before: the whole prompt, then token by token.
        """
        if not plan.speculation.strict:
            target.keep_widths(1, None)
            return plan
        if target.context.can_truncate or target.context.n_rollback >= _NARROWEST:
            certificate = self._certificate(plan.target, model, target)
            if certificate.is_exact:
                target.keep_widths(1, None)
                return plan
            narrowest = max(_NARROWEST, certificate.min_width or 0)
            if certificate.min_width is not None and (
                target.context.can_truncate or narrowest <= target.context.n_rollback
            ):
                singles = _SINGLES_UNTIL if certificate.min_width == 1 else 0
                target.keep_widths(narrowest, _STRICT_BATCH, any_width_until=singles)
                return plan
        target.keep_widths(1, _STRICT_BATCH)
        target.truncate(0)
        if plan.draft != "none":
            self.notices.append("strict: no two widths agree bit for bit here, so nobody drafts")
        speculation = replace(plan.speculation, n_draft=0, pad=False)
        return replace(plan, draft="none", earlier_reply=(), speculation=speculation)


def require_same_vocabulary(target: Model, draft: Model) -> None:
    """Compares token by token; padding rows beyond the smaller vocabulary are allowed. Raises VocabularyError."""
    for token in range(min(target.vocab.n_tokens, draft.vocab.n_tokens)):
        ours, theirs = (model.vocab.piece(token, special=True) for model in (target, draft))
        if ours != theirs:
            raise VocabularyError(
                f"the draft's vocabulary differs from the target's: token {token} is {theirs!r}, not {ours!r}; "
                "choose a draft of the same family"
            )


def _measure_certificate(name: str, model: Model, target: KVCache) -> Certificate:
    del name
    target.truncate(0)
    return certificate(target.context, model.vocab, None)
