"""Contestants over a Runtime of this package: a setting (who answers, who drafts, how far) becomes a measured reply.

Every run starts with cold KV caches, so that time to first token means the same each time. Knows nothing of repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...engine.stats import SpeculationStats
from ...errors import EngineError
from ...gguf.family.guests import is_guest
from ...params import NOT_SIBLINGS, SamplingParams, SpeculationParams
from ...placement.power.energy import EnergyMeter, NoEnergy
from ...request import Request
from ...runtime import Runtime
from ..measure.measurement import Case, Contestant, Sample

NO_WEIGHTS = (*NOT_SIBLINGS, "redo")
_GREEDY = SamplingParams(temperature=0)
_ALONE = SpeculationParams(draft="none", n_draft=0)


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to answer. route: picks (target, speculation) by prompt instead of the fixed ones."""

    name: str
    target: str
    speculation: SpeculationParams = field(default_factory=lambda: _ALONE)
    route: Callable[[str], tuple[str, SpeculationParams]] | None = None

    @property
    def draft(self) -> str:
        """Who drafts, in words."""
        return "by prompt" if self.route else self.speculation.draft or "the plan's choice"

    def resolve(self, prompt: str) -> tuple[str, SpeculationParams]:
        """(target, speculation) for one prompt."""
        return self.route(prompt) if self.route else (self.target, self.speculation)


def alone(target: str) -> Setting:
    """A sibling without a draft: the baseline of all settings with that target."""
    return Setting(f"{target} alone", target)


class LocalRuns:
    """Replies of one runtime, measured. decode_bytes: weights that one forward of each sibling reads."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        decode_bytes: dict[str, int] | None = None,
        energy: EnergyMeter | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runtime = runtime
        self._decode_bytes = decode_bytes or {}
        self._energy = energy or NoEnergy()
        self._clock = clock
        self._prompts: dict[str, list[int]] = {}

    def contestant(self, setting: Setting, n_memory_bytes: int | None = None) -> Contestant:
        """A setting as somebody who answers cases."""
        is_plain = setting.speculation == _ALONE and setting.route is None
        baseline = setting.name if is_plain else alone(setting.target).name
        measure: Callable[[Case], Sample] = lambda case: self.measure(setting, case)  # noqa: E731
        return Contestant(setting.name, baseline, setting.target, setting.draft, measure, n_memory_bytes)

    def tokens(self, case: Case) -> list[int]:
        """The prompt's ids, template applied; the same for everybody."""
        if case.prompt not in self._prompts:
            self._prompts[case.prompt] = self._runtime.tokens(Request(prompt=case.prompt))
        return self._prompts[case.prompt]

    def measure(self, setting: Setting, case: Case) -> Sample:
        """One cold greedy reply. Raises what the reply raises."""
        prompt = self.tokens(case)
        target, speculation = setting.resolve(case.prompt)
        request = Request(
            prompt_tokens=prompt,
            target=target,
            max_tokens=case.max_tokens,
            sampling=_GREEDY,
            speculation=speculation,
        )
        target, draft = self._runtime.siblings(request)
        self._forget(target, draft, prompt[0])
        return self._reply(request, target)

    def _reply(self, request: Request, target: str) -> Sample:
        ids: list[int] = []
        texts: list[str] = []
        stats: SpeculationStats | None = None
        begun = first = last = self._clock()
        for event in self._runtime.generate(request):
            last = self._clock()
            if event.token_id is not None:
                first = first if ids else last
                ids.append(event.token_id)
            texts.append(event.text)
            stats = event.stats or stats
        if stats is None:
            raise EngineError(f"{target} ended without figures: the engine died while it answered; see the log")
        n_bytes = self._bytes_moved(stats, target)
        return Sample(
            n_prompt=stats.n_prompt,
            n_generated=stats.n_generated,
            ttft_s=stats.ttft_s,
            decode_s=stats.decode_s,
            tokens=tuple(ids),
            n_rounds=stats.n_rounds,
            n_drafted=stats.n_drafted,
            n_accepted=stats.n_accepted,
            accepted_by_position=stats.accepted_by_position,
            draft_s=stats.draft_s,
            verify_s=stats.verify_s,
            target_s=stats.target_s,
            drafter_s=stats.drafter_s,
            sampling_s=stats.sampling_s,
            n_bytes_moved=n_bytes,
            prefill_j=self._energy.joules(begun, first),
            decode_j=self._energy.joules(first, last),
            speedup_estimate=stats.speedup_estimate,
            reason=stats.n_draft_reason,
            text="".join(texts),
        )

    def _bytes_moved(self, stats: SpeculationStats, target: str) -> int | None:
        """Weights read while decoding: one pass a round, one a draft token of a sibling; look-ups read none.

        A sibling that checks looked-up guesses on the way makes fewer passes than tokens, so this is at most too much.
        None when the bytes of one that took part are unknown.
        """
        total = self._decode_bytes.get(target)
        if total is None:
            return None
        total *= stats.n_rounds
        for source, n_drafted in stats.drafted_by.items():
            if source in NO_WEIGHTS:
                continue
            n_bytes = self._decode_bytes.get(source)
            if n_bytes is None:
                return None
            total += n_drafted * n_bytes
        return total

    def _forget(self, target: str, draft: str, first: int) -> None:
        """Makes the cache of everybody who takes part hold something else; a guest cannot answer, so it drafts."""
        other = first + 1 if first == 0 else first - 1
        names = sorted({target, *draft.split("+")} - set(NOT_SIBLINGS))
        for name in names:
            by_guest = SpeculationParams(draft=name, n_draft=1)
            answering, speculation, n = (target, by_guest, 3) if is_guest(name) else (name, _ALONE, 1)
            request = Request(
                prompt_tokens=[other], target=answering, max_tokens=n, sampling=_GREEDY, speculation=speculation
            )
            for _ in self._runtime.generate(request):
                pass


def baselines(settings: Sequence[Setting]) -> list[Setting]:
    """The settings with the target alone of each in front, once."""
    names = dict.fromkeys(setting.target for setting in settings)
    known = {setting.name for setting in settings}
    return [*(alone(name) for name in names if alone(name).name not in known), *settings]
