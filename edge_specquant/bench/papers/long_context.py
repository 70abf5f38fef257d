"""Acceptance and cost of drafting at long contexts, by the type of the draft's KV cache (BitNest's Tables 9 to 11).

Takes a pair of siblings and context lengths, gives ContextPoints. The target (F16 cells) writes its own greedy reply
behind a long text; each draft cache then reads text and reply once, and greedy speculation is replayed exactly from
the positions at which the draft would have said the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ...engine.caches.kv_cache import KVCache
from ...errors import ContextFullError, EdgeSpecQuantError
from ...gguf.quantize.collect import shipped_text
from ...native.protocol import ContextParams, Model, Vocab
from ...placement.cost.footprint import ContextShape, footprint
from ..reports import tables
from ..reports.tables import Table
from ..runs.workplace import Workplace, open_sibling
from .draft_profile import greedy_reply

KV_TYPES = ("f16", "q8_0", "q4_0")
N_REPLY = 64
_N_TIMED = 6
# Table 9 (LLaMA-2-7B-32K, 4-bit draft cells, gamma 4): context -> (tokens/s, draft-slot acceptance).
PAPER_AT = {"4K": (59.3, 0.856), "31K": (34.3, 0.875)}
# Table 10 at 32K, tokens/s with draft cells of BF16, 8 and 4 bits.
PAPER_CELLS = {"LLaMA-2-7B-32K, MHA": (23.4, 28.5, 34.3), "Qwen2.5-7B, GQA": (50.7, 51.1, 51.4)}


@dataclass(frozen=True, slots=True)
class ContextPoint:
    """One context length and draft cache. acceptance: of drafted tokens, n_draft a round; seconds are medians.

    n_kv_bytes: the draft's cells.
    """

    n_ctx: int
    kv_type: str
    acceptance: float
    tokens_per_round: float
    draft_s: float
    target_s: float
    n_kv_bytes: int


def measure_contexts(
    place: Workplace, target: str, draft: str, contexts: Sequence[int], n_draft: int, say: Callable[[str], None]
) -> list[ContextPoint]:
    """Context by context, each prefill continuing the last. A cache type that the model cannot have is left out."""
    n_ctx = max(contexts)
    points: list[ContextPoint] = []
    with contextlib.ExitStack() as stack:
        models = [
            stack.enter_context(contextlib.closing(open_sibling(place.family, name, place.options)))
            for name in (target, draft)
        ]
        reader = _cache(stack, models[0], n_ctx, "f16", place.options.n_threads)
        drafts: dict[str, KVCache] = {}
        for kv_type in KV_TYPES:
            try:
                drafts[kv_type] = _cache(stack, models[1], n_ctx, kv_type, place.options.n_threads)
            except EdgeSpecQuantError as error:
                place.notes.append(f"no {kv_type} draft cache: {error}")
        text = _tokens(models[0].vocab, n_ctx)
        for length in sorted(contexts):
            say(f"{length} tokens: {target} reads and replies")
            prompt = text[: length - N_REPLY]
            with contextlib.suppress(ContextFullError):
                reply = greedy_reply(reader, prompt, N_REPLY, frozenset())
                target_s = _step_s(reader, [*prompt, *reply])
                for kv_type, cache in drafts.items():
                    say(f"{length} tokens: {draft} with {kv_type} cells reads")
                    same = _agreement(cache, prompt, reply)
                    accepted, per_round = replayed(same, n_draft)
                    draft_s = _step_s(cache, [*prompt, *reply])
                    n_bytes = _cell_bytes(place, draft, length, kv_type)
                    points.append(ContextPoint(length, kv_type, accepted, per_round, draft_s, target_s, n_bytes))
    return points


def replayed(same: Sequence[bool], n_draft: int) -> tuple[float, float]:
    """(accepted of drafted, tokens a round) of greedy speculation; same[i]: the draft agrees on token i of the reply.

    Exact, because what is accepted is the target's own text: every draft starts behind a part of it.
    """
    position = n_rounds = n_accepted = n_drafted = 0
    while position < len(same):
        window = same[position : position + n_draft]
        run = next((i for i, agrees in enumerate(window) if not agrees), len(window))
        n_rounds, n_accepted, n_drafted = n_rounds + 1, n_accepted + run, n_drafted + len(window)
        position += run + 1
    return (n_accepted / n_drafted, 1 + n_accepted / n_rounds) if n_drafted else (0.0, 1.0)


def context_table(points: Sequence[ContextPoint], target: str, draft: str, n_draft: int) -> Table:
    """A row for each context and cache type, then the paper's."""
    rows = []
    for point in points:
        round_s = n_draft * point.draft_s + point.target_s  # a wide target forward for the price of one: optimistic
        rows.append(
            (
                f"{point.n_ctx // 1024}K" if point.n_ctx >= 1024 else str(point.n_ctx),
                point.kv_type,
                tables.share(point.acceptance),
                f"{point.tokens_per_round:.2f}",
                f"{1e3 * point.draft_s:.1f}",
                f"{1e3 * point.target_s:.1f}",
                f"{point.tokens_per_round * point.target_s / round_s:.2f}x",
                tables.size(point.n_kv_bytes),
            )
        )
    blank = tables.UNKNOWN
    for context, (rate, share) in PAPER_AT.items():
        cells = (f"{100 * share:.1f} %", blank, blank, blank, f"{rate} tokens/s", blank)
        rows.append((f"paper: {context}, γ 4", "4 bits", *cells))
    for model, rates in PAPER_CELLS.items():
        cells = (blank, blank, blank, blank, " / ".join(map(str, rates)) + " tokens/s", blank)
        rows.append((f"paper: 32K, {model}", "16 / 8 / 4 bits", *cells))
    columns = (
        "Context",
        "draft's KV cells",
        f"acceptance, γ {n_draft}",
        "tokens a round",
        "ms a draft token",
        "ms a target token",
        "speedup at most",
        "draft's cells",
    )
    notes = (
        f"{draft} drafts for {target}, whose own cells are F16; the last {N_REPLY} of so many tokens are the reply, "
        "replayed; the texts of this package (about 3,600 tokens), repeated where that is not enough, which makes the "
        "reply easier to guess",
        "speedup at most: as if verifying γ + 1 tokens cost no more than decoding one",
    )
    return Table("Tables 9 to 11: draft KV cells by context", columns, tuple(rows), notes)


def _cache(stack: contextlib.ExitStack, model: Model, n_ctx: int, kv_type: str, n_threads: int) -> KVCache:
    params = ContextParams(
        n_ctx=n_ctx, n_batch=512, max_rows=N_REPLY, n_threads=n_threads, type_k=kv_type, type_v=kv_type
    )
    return KVCache(stack.enter_context(contextlib.closing(model.context(params))))


def _tokens(vocab: Vocab, n: int) -> list[int]:
    """The package's own texts, over again as often as needed."""
    ids = vocab.tokenize(shipped_text("calibration") + "\n\n" + shipped_text("heldout"))
    return (ids * (1 + n // max(1, len(ids))))[:n]


def _agreement(cache: KVCache, prompt: Sequence[int], reply: Sequence[int]) -> list[bool]:
    """For each token of the reply but the first, whether the draft would have chosen it."""
    cache.hold(prompt)
    rows = cache.extend(reply[:-1], len(reply) - 1)
    return [bool(chosen == token) for chosen, token in zip(np.argmax(rows, axis=1), reply[1:], strict=True)]


def _step_s(cache: KVCache, text: Sequence[int]) -> float:
    """Median seconds of one more token near the end of the text."""
    cache.truncate(len(text) - _N_TIMED - 1)
    times = []
    for token in text[-_N_TIMED - 1 : -1]:
        begun = time.perf_counter()
        cache.extend([token])
        times.append(time.perf_counter() - begun)
    return median(times)


def _cell_bytes(place: Workplace, draft: str, n_ctx: int, kv_type: str) -> int:
    shape = ContextShape(n_ctx=n_ctx, type_k=kv_type, type_v=kv_type)
    return footprint(place.siblings[draft].card, shape, n_gpu_layers=0).host.n_kv
