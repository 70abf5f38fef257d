"""The loop: prefill, then rounds of draft, verify, commit, yield. Gives an iterator of TokenEvent.

Between rounds the target's cache holds the history without its last token. Everything is committed before anything is
yielded, so a closed iterator leaves nothing to mend. Knows nothing of files, prompts as text, or threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..errors import AbortedError, PromptTooLongError, UsageError
from ..native.protocol import Logits, Vocab
from .caches.kv_cache import KVCache, OnProgress
from .control.draft_length import Controller
from .drafters.draft import NOTHING, Draft, Drafter
from .events import PromptToken, TokenEvent, TokenLogprobs
from .prompts.prompt_scores import score_prompt
from .prompts.shorten import Shorten
from .sampling import TokenSampler
from .stats import RoundRecord, StatsBuilder
from .thoughts.parts import Parts
from .thoughts.text import PartedText
from .verify import Verdict, verify

_ENDLESS = 1 << 40
_LONGEST_BEHIND = 16  # tokens that ride along in every verification until one is accepted whole
FORGETS = "the context is full: the oldest turns are left out from here on"


@dataclass(slots=True)
class Job:
    """One request, ready for the loop. max_tokens None is as many as the context holds.

    width: tokens a verify batch needs -> tokens it is padded to (the cheapest width at or above).
    on_round: sees each finished round (a recorder).
    n_prompt_logprobs: the prompt's tokens are scored, with so many alternatives each; its cells are made anew.
    shorten: asked when the context is full; the reply goes on after what it keeps. None, or an answer of None, stops.
    note: a sentence for the user, on the first token.
    parts: where the reply begins, for a model that thinks; None is an answer and nothing else.
    """

    prompt: Sequence[int]
    target: KVCache
    drafter: Drafter
    controller: Controller
    sampler: TokenSampler
    vocab: Vocab
    max_tokens: int | None = None
    stops: Sequence[str] = ()
    accept: str = "match"
    on_prefill: OnProgress | None = None
    width: Callable[[int], int] = lambda n: n
    n_logprobs: int | None = None
    n_prompt_logprobs: int | None = None
    shorten: Shorten | None = None
    note: str | None = None
    on_round: Callable[[RoundRecord], None] | None = None
    parts: Parts | None = None
    history: list[int] = field(default_factory=list)


def stream(job: Job) -> Iterator[TokenEvent]:
    """Runs a job to its end. Raises UsageError for a prompt that is empty or longer than the context."""
    _check(job)
    run = _Run(job)
    try:
        yield from run.events()
    except AbortedError:
        yield run.last_event("cancelled")


def _check(job: Job) -> None:
    n, n_ctx = len(job.prompt), job.target.n_ctx
    if n == 0:
        raise UsageError("the prompt is empty; give at least one token")
    if n > n_ctx:
        raise PromptTooLongError(f"the prompt has {n} tokens and the context holds {n_ctx}; shorten it or raise --ctx")
    n_vocab = job.target.context.n_vocab
    if not 0 <= min(job.prompt) <= max(job.prompt) < n_vocab:
        raise UsageError(f"token {max(job.prompt)} of the prompt is none of the vocabulary's {n_vocab}")
    if job.max_tokens is not None and job.max_tokens < 0:
        raise UsageError(f"max_tokens is {job.max_tokens}; it must be 0 or more")


class _Run:
    """The state of one job in the loop."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.history = job.history
        self.history[:] = job.prompt
        room = job.target.n_ctx - len(job.prompt)
        self.left = job.max_tokens if job.max_tokens is not None else _ENDLESS
        if job.shorten is None:
            self.left = min(self.left, room)
        self.position = self.n_prompt = len(job.prompt)
        self.text = PartedText(job.vocab, job.stops, job.parts)
        self.stats = StatsBuilder(n_prompt=len(job.prompt))
        self.started = self.resumed = time.perf_counter()
        self.scored: tuple[PromptToken, ...] | None = None
        self.note = job.note

    def events(self) -> Iterator[TokenEvent]:
        job = self.job
        if self.left == 0 and job.n_prompt_logprobs is None:
            yield self.last_event("length")
            return
        verdict = self._prefill()
        if self.scored is not None:
            yield TokenEvent("", prompt=self.scored)
        if self.left == 0:
            yield self.last_event("length")
            return
        origins: Sequence[str] = ()
        while True:
            for i, token in enumerate(verdict.tokens):
                logprobs = verdict.logprobs[i] if verdict.logprobs else None
                if token in job.sampler.eog_tokens:
                    yield replace(self.last_event("stop"), end_token=token, logprobs=logprobs)
                    return
                origin = origins[i] if i < verdict.n_accepted else "target"
                yield self._emit(token, origin, logprobs, len(origins) if i == 0 and origins else None)
                self.resumed = time.perf_counter()
                if self.text.stopped:
                    yield self.last_event("stop")
                    return
                if job.sampler.is_complete and i == len(verdict.tokens) - 1:
                    yield self.last_event("stop")
                    return
                if self.left == 0:
                    yield self.last_event("length")
                    return
            if job.shorten and len(self.history) >= job.target.n_ctx:
                if not self._shift(job.shorten):
                    yield self.last_event("length")
                    return
                self.note = FORGETS
            draft, verdict = self._round()
            origins = draft.origins

    def last_event(self, finish_reason: str) -> TokenEvent:
        self.stats.n_draft_reason = self.job.controller.reason
        self.stats.speedup_estimate = self.job.controller.speedup_estimate
        self.stats.n_thought = self.text.n_thought
        self._pause()
        rest = self.text.flush()
        return TokenEvent(rest.text, finish_reason=finish_reason, stats=self.stats.build(), thought=rest.thought)

    def _pause(self) -> None:
        """The reader has its turn: what passed since its last one was the loop's."""
        if self.stats.ttft_s is not None:
            self.stats.decode_s += time.perf_counter() - self.resumed

    def _prefill(self) -> Verdict:
        """Decodes what the cache lacks of the prompt; the first token comes from its last row."""
        job = self.job
        if job.n_prompt_logprobs is None:
            job.target.truncate(min(job.target.shared_prefix(job.prompt), len(job.prompt) - 1))
            self.stats.n_cached = job.target.n_past
            rows = job.target.read(job.prompt, job.on_prefill)
        else:
            self.scored, rows = score_prompt(job.target, job.prompt, job.n_prompt_logprobs, job.on_prefill)
        job.sampler.accept_prompt(job.prompt)
        verdict = self._judge(NOTHING, rows)
        self.history.extend(verdict.tokens)
        job.drafter.begin(self.history)
        self.stats.prefill_s = time.perf_counter() - self.started
        self.stats.sampling_s = 0.0
        return verdict

    def _round(self) -> tuple[Draft, Verdict]:
        """Draft, verify, commit."""
        job, history = self.job, self.history
        target_s, drafter_s, undo_s = job.target.decode_s, job.drafter.decode_s, job.target.states.spent_s
        begun = time.perf_counter()
        n_past = len(history)
        room = job.target.n_ctx - n_past  # a shift comes at the same token whatever is drafted
        limit = min(job.controller.limit(), self.left - 1, job.target.context.max_rows - 1, room - 1)
        if not job.target.can_undo or n_past - job.target.n_past > _LONGEST_BEHIND:
            limit = 0  # a rejected suffix could not be dropped, or what earlier ones undid is to be made good first
        draft = NOTHING
        if limit > 0:
            draft = job.drafter.propose(history, limit, job.controller.should_continue, job.sampler.fork())
        drafted = time.perf_counter()
        n_pending = n_past - job.target.n_past
        pending = [*history[job.target.n_past :], *draft.tokens]
        width = job.width(len(pending))
        rows = job.target.extend_padded(pending, 1 + len(draft.tokens), width)
        verdict = self._judge(draft, rows)
        job.target.truncate(len(history) + verdict.n_accepted)
        history.extend(verdict.tokens)
        job.drafter.accepted(verdict.n_accepted)
        done = time.perf_counter()
        undo_s = job.target.states.spent_s - undo_s
        record = RoundRecord(
            n_drafted=len(draft.tokens),
            n_accepted=verdict.n_accepted,
            draft_s=drafted - begun,
            verify_s=done - drafted - undo_s,
            width=max(width, len(pending)),
            n_past=n_past,
            source=draft.origins[0] if draft.origins else "none",
            signals=draft.signals,
            n_behind=draft.n_behind,
            n_pending=n_pending,
            undo_s=undo_s,
        )
        job.controller.observe(record)
        if job.on_round is not None:
            job.on_round(record)
        self.stats.add_round(record)
        self.stats.target_s += job.target.decode_s - target_s
        self.stats.drafter_s += job.drafter.decode_s - drafter_s
        return draft, verdict

    def _judge(self, draft: Draft, rows: Logits) -> Verdict:
        job = self.job
        begun = time.perf_counter()
        verdict = verify(
            draft,
            rows,
            job.sampler,
            self.position,
            accept=job.accept,
            eog_tokens=job.sampler.eog_tokens,
            n_logprobs=job.n_logprobs,
        )
        self.position += len(verdict.tokens)
        self.stats.sampling_s += time.perf_counter() - begun
        return verdict

    def _shift(self, shorten: Shorten) -> bool:
        """Goes on after a shorter history; caches follow by their common prefix. False where it cannot get shorter."""
        job, n_before = self.job, len(self.history)
        shorter = shorten(self.history, self.n_prompt, job.target.n_ctx)
        if shorter is None or len(shorter[0]) >= n_before:
            return False
        self.history[:], self.n_prompt = shorter
        job.target.hold(self.history[:-1])
        job.drafter.begin(self.history)
        self.stats.n_shifted += n_before - len(self.history)
        return True

    def _emit(self, token: int, origin: str, logprobs: TokenLogprobs | None, n_draft: int | None) -> TokenEvent:
        self.left -= 1
        self.stats.n_generated += 1
        self.stats.origins[origin] += 1
        if self.stats.ttft_s is None:
            self.stats.ttft_s = time.perf_counter() - self.started
            self.resumed = time.perf_counter()
        part, thought, text = self.text.feed(token)
        self._pause()
        note, self.note = self.note, None
        return TokenEvent(
            text, token, origin, note=note, logprobs=logprobs, n_draft=n_draft, part=part, thought=thought
        )
