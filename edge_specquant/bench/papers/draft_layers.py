"""Which layers a 4-bit draft can do without (Draft & Verify): a search by goodput measured on this machine.

Takes a family with a target and its draft; gives what was tried and the best. Files of candidates are copies without
the dropped layers, in a temporary folder beside the family. Adding the winner to the family is the business of
gguf/convert/skipped_layers.py.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from ...engine.caches.kv_cache import KVCache
from ...gguf.family.family import Family
from ...gguf.quantize.collect import shipped_text
from ...gguf.quantize.quantize import prune_gguf
from ...native.opening import open_model
from ...native.protocol import ContextParams, Model
from ...placement.cost.cost_curve import CostCurve
from ..measure.width_costs import measure_curves
from .draft_profile import greedy_reply
from .long_context import replayed

MUST_GAIN = 1.03
_LONGEST = 8
_N_PROMPTS = 6
_PROMPT_TOKENS = 64
_REPLY_TOKENS = 48
_N_TIMED = 24
_N_ROUNDS = 5  # in which two drafts are timed in turns
_N_CTX = 256

Say = Callable[[str], None]
Tokens = Sequence[int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft without some layers. tokens_per_s: of the pair, at its best fixed draft length; draft_s: one token.

    While searching, draft_s is what the whole draft takes less a measured share for each layer: agreement decides, not
    the noise of a short measurement. The winner is timed itself.
    """

    dropped: tuple[int, ...]
    agreement: float
    draft_s: float
    tokens_per_s: float
    n_draft: int

    @property
    def name(self) -> str:
        """'without layers 3, 17', or 'all layers'."""
        return f"without layers {', '.join(map(str, sorted(self.dropped)))}" if self.dropped else "all layers"


@dataclass(frozen=True, slots=True)
class Search:
    """plain: nothing dropped; best: the fastest that drops something. alone_tokens_per_s: the target by itself."""

    target: str
    draft: str
    plain: Candidate
    best: Candidate
    tried: tuple[Candidate, ...]
    alone_tokens_per_s: float

    @property
    def pays(self) -> bool:
        """Whether the best is worth a file of its own."""
        return self.best.tokens_per_s >= MUST_GAIN * self.plain.tokens_per_s

    @property
    def sentence(self) -> str:
        """What came out, with figures."""
        best, plain = self.best, self.plain
        figures = (
            f"{self.draft} {best.name} agrees on {best.agreement:.0%} of {self.target}'s tokens at "
            f"{1e3 * best.draft_s:.1f} ms and gives {best.tokens_per_s:.1f} tokens/s; with all layers "
            f"{plain.agreement:.0%}, {1e3 * plain.draft_s:.1f} ms, {plain.tokens_per_s:.1f} tokens/s; "
            f"{self.target} alone {self.alone_tokens_per_s:.1f}"
        )
        return f"layers dropped: {figures}" if self.pays else f"no layer is dropped, it does not pay here: {figures}"


def search_layers(family: Family, target: str, draft: str, *, n_threads: int = 0, say: Say) -> Search:
    """Drops each layer alone, then the harmless ones together, more and more of them. Raises EngineError, FileError."""
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(open_model(family.path(target)))
        cache = _cache(stack, model, n_threads)
        say(f"{target}: replies to judge drafts by, and what its forwards cost")
        cases = _cases(model, cache)
        curve = _curve(cache)
    n_layer = family.card(draft).n_layer
    with tempfile.TemporaryDirectory(prefix=".draft-layers-", dir=family.folder) as folder:
        trial = _Trial(family.path(draft), Path(folder), cases, curve, n_threads)
        say(f"{draft}: what a layer costs")
        half = tuple(range(n_layer // 4, n_layer // 4 + max(1, n_layer // 2)))
        whole_s, half_s = trial.times((), half)
        layer_s = max(0.0, whole_s - half_s) / len(half)
        tried: list[Candidate] = []
        for layer in range(n_layer):
            say(f"{draft}: without layer {layer} of {n_layer}")
            tried.append(trial.run((layer,), whole_s - layer_s))
        harmless = [one.dropped[0] for one in sorted(tried, key=lambda one: -one.agreement)]
        for n in _sizes(n_layer):
            say(f"{draft}: without {n} layers")
            tried.append(trial.run(tuple(sorted(harmless[:n])), whole_s - n * layer_s))
            if tried[-1].tokens_per_s < 0.8 * max(one.tokens_per_s for one in tried):
                break  # more layers only make it worse
        best = max(tried, key=lambda one: one.tokens_per_s)
        say(f"{draft}: the best again, in turns with all layers")
        whole_s, best_s = trial.times((), best.dropped)
        plain, best = trial.run((), whole_s), trial.run(best.dropped, best_s)
    return Search(target, draft, plain, best, tuple(tried), 1.0 / curve.decode_s(1))


@dataclass(frozen=True, slots=True)
class _Trial:
    """What stays the same over all candidates."""

    draft: Path
    folder: Path
    cases: Sequence[tuple[Tokens, Tokens]]
    curve: CostCurve
    n_threads: int

    def run(self, dropped: tuple[int, ...], draft_s: float) -> Candidate:
        """Agreement is measured, the time of a draft token given."""
        with self._open(dropped) as cache:
            return self._judged(dropped, [_agreement(cache, *case) for case in self.cases], draft_s)

    def times(self, *choices: tuple[int, ...]) -> list[float]:
        """Seconds a token, taken in turns: a machine that slows down slows all of them."""
        with contextlib.ExitStack() as stack:
            caches = [stack.enter_context(self._open(dropped)) for dropped in choices]
            times: list[list[float]] = [[] for _ in caches]
            for _ in range(_N_ROUNDS):
                for found, cache in zip(times, caches, strict=True):
                    found.append(_step_s(cache, self.cases[0]))
        return [median(found) for found in times]

    def _judged(self, dropped: tuple[int, ...], same: Sequence[Sequence[bool]], draft_s: float) -> Candidate:
        def rate(n: int) -> float:
            per_round = float(np.mean([replayed(each, n)[1] for each in same]))
            return per_round / (n * draft_s + self.curve.decode_s(1 + n))

        n_draft = max(range(1, _LONGEST + 1), key=rate)
        agreement = float(np.mean([agrees for each in same for agrees in each]))
        return Candidate(dropped, agreement, draft_s, rate(n_draft), n_draft)

    @contextlib.contextmanager
    def _open(self, dropped: tuple[int, ...]) -> Iterator[KVCache]:
        path = self.draft
        if dropped:
            path = self.folder / f"{'-'.join(map(str, dropped))}.gguf"
            prune_gguf(self.draft, path, dropped)
        try:
            with contextlib.ExitStack() as stack:
                yield _cache(stack, stack.enter_context(open_model(path)), self.n_threads)
        finally:
            if dropped:
                path.unlink(missing_ok=True)


def _sizes(n_layer: int) -> list[int]:
    """How many layers to drop together: 2, 3, 4, 6, 8, 11 ... up to half of them."""
    sizes = [2]
    while (following := max(sizes[-1] + 1, int(sizes[-1] * 1.4))) <= n_layer // 2:
        sizes.append(following)
    return [n for n in sizes if n < n_layer]


def _cache(stack: contextlib.ExitStack, model: Model, n_threads: int) -> KVCache:
    params = ContextParams(n_ctx=_N_CTX, n_batch=_N_CTX, max_rows=_REPLY_TOKENS, n_threads=n_threads)
    return KVCache(stack.enter_context(contextlib.closing(model.context(params))))


def _cases(model: Model, cache: KVCache) -> list[tuple[Tokens, Tokens]]:
    """Pieces of the calibration text, each with the target's own greedy continuation."""
    ids = model.vocab.tokenize(shipped_text("calibration"))
    step = max(1, (len(ids) - _PROMPT_TOKENS) // _N_PROMPTS)
    prompts = [ids[i * step : i * step + _PROMPT_TOKENS] for i in range(_N_PROMPTS)]
    return [(prompt, greedy_reply(cache, prompt, _REPLY_TOKENS, frozenset())) for prompt in prompts]


def _curve(cache: KVCache) -> CostCurve:
    costs = measure_curves({"target": cache}, widths=tuple(range(1, _LONGEST + 2)))["target"]
    seconds = tuple(cost.seconds.median for cost in costs)
    return CostCurve(tuple(cost.width for cost in costs), (costs[0].n_past,), (seconds,))


def _agreement(cache: KVCache, prompt: Tokens, reply: Tokens) -> list[bool]:
    cache.hold(prompt)
    rows = cache.extend(reply[:-1], len(reply) - 1)
    return [bool(chosen == token) for chosen, token in zip(np.argmax(rows, axis=1), reply[1:], strict=True)]


def _step_s(cache: KVCache, case: tuple[Tokens, Tokens]) -> float:
    """Median seconds of one token."""
    prompt, reply = case
    cache.hold(prompt)
    times = []
    for token in reply[:_N_TIMED]:
        begun = time.perf_counter()
        cache.extend([token])
        times.append(time.perf_counter() - begun)
    return median(times)
