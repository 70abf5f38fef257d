"""`bench states`: what taking tokens back costs a model with recurrent states: rolled back, saved and restored, never.

A random model of a kind, made for the bench: speed does not depend on what weights say. Each round verifies the same
number of draft tokens of which as many are accepted as a coin decides; the ways take turns. Knows no real drafter.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...engine.caches.kv_cache import KVCache
from ...native.model import NativeModel
from ...native.opening import open_model
from ...native.protocol import DEFAULT_N_ROLLBACK, ContextParams
from ...native.selftest.tiny_kinds import Sizes, write_tiny_kind
from ...placement.machine.this_machine import probe_here
from ...units import format_bytes
from ..measure.environment import environment_line, record_hardware
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..reports.tables import Table

PLAIN, PLAIN_WITH_COPIES = "nothing drafted", "nothing drafted, copies kept"
WITH_COPIES = ("rolled back", PLAIN_WITH_COPIES)
WAYS = ("rolled back", "saved and restored", PLAIN_WITH_COPIES, PLAIN)
_N_PAST = 256
_SEED = 3


@dataclass(frozen=True, slots=True)
class StateCost:
    """One way. round_s: the fastest of the turns' mean seconds of a round; tokens: a round's mean; n_bytes: of states
    in the context and kept on the host.
    """

    way: str
    round_s: float
    tokens: float
    n_bytes: int

    @property
    def token_s(self) -> float:
        """Seconds of a token."""
        return self.round_s / self.tokens


def bench_states(
    say: Say, *, kind: str, sizes: Sizes, n_draft: int, acceptance: float, n_rounds: int, repeats: int, n_threads: int
) -> Result:
    """Interleaved turns of n_rounds rounds each. Raises UsageError for a kind there is none of."""
    environment = record_hardware(probe_here(), n_threads)
    with tempfile.TemporaryDirectory(prefix="edge-specquant-states-") as folder:
        say("a random model is made")
        path = write_tiny_kind(Path(folder) / "random.gguf", kind, sizes=sizes)
        with open_model(path) as model:
            rows = _measure(say, model, n_draft, acceptance, n_rounds, repeats, n_threads)
            size = format_bytes(model.n_bytes)
    table = _table(rows, f"{kind}, {size}, {environment_line(environment)}", n_draft, acceptance)
    sentences = (_verdict(rows),)
    document = make_document(
        "states",
        environment=environment,
        memory=kind,
        n_draft=n_draft,
        acceptance=acceptance,
        ways=rows,
        verdict=sentences,
    )
    return Result(f"States of a random {kind} model", document, (table,), sentences)


def _measure(
    say: Say, model: NativeModel, n_draft: int, acceptance: float, n_rounds: int, repeats: int, n_threads: int
) -> list[StateCost]:
    caches = {way: _cache(model, way, n_threads) for way in WAYS}
    if caches[WAYS[0]].context.n_rollback == 0:  # this architecture keeps no copies
        caches = {way: cache for way, cache in caches.items() if way not in WITH_COPIES}
    times: dict[str, list[float]] = {way: [] for way in caches}
    tokens: dict[str, float] = {}
    try:
        for turn in range(repeats):
            for way, cache in caches.items():
                say(f"turn {turn + 1} of {repeats}: {way}")
                cache.truncate(0)
                cache.extend([5 + i % 90 for i in range(_N_PAST)], 1)
                begun = time.perf_counter()
                tokens[way] = _rounds(cache, 0 if way in (PLAIN, PLAIN_WITH_COPIES) else n_draft, acceptance, n_rounds)
                times[way].append((time.perf_counter() - begun) / n_rounds)
        return [StateCost(way, min(times[way]), tokens[way], _n_bytes(cache)) for way, cache in caches.items()]
    finally:
        for cache in caches.values():
            cache.context.close()


def _cache(model: NativeModel, way: str, n_threads: int) -> KVCache:
    n_rollback = DEFAULT_N_ROLLBACK if way in WITH_COPIES else 0
    params = ContextParams(n_ctx=4096, n_batch=256, max_rows=32, n_threads=n_threads, n_rollback=n_rollback)
    return KVCache(model.context(params))


def _rounds(cache: KVCache, n_draft: int, acceptance: float, n_rounds: int) -> float:
    """Plays the rounds; mean tokens of one. The text is arbitrary: what counts is how much of it is taken back."""
    coin = np.random.default_rng(_SEED)
    history = [*cache.tokens, 7]
    begun = len(history)
    for _ in range(n_rounds):
        pending = [*history[cache.n_past :], *([11] * n_draft)]
        cache.extend_padded(pending, 1 + n_draft, len(pending))
        kept = int(np.argmin([*(coin.random(n_draft) < acceptance), False]))
        cache.truncate(len(history) + kept)
        history += [*([11] * kept), 7]
    return (len(history) - begun) / n_rounds


def _n_bytes(cache: KVCache) -> int:
    """A state's bytes as saved, times the copies in the context and those kept."""
    state = cache.context.save_partial()
    return 0 if state is None else state.nbytes * (1 + cache.context.n_rollback) + cache.states.n_bytes


def _table(rows: Sequence[StateCost], where: str, n_draft: int, acceptance: float) -> Table:
    plain = rows[-1]
    cells = tuple(
        (
            row.way,
            f"{1e3 * row.round_s:.2f}",
            f"{row.tokens:.2f}",
            f"{1e3 * row.token_s:.2f}",
            f"{plain.token_s / row.token_s:.2f}x",
            format_bytes(row.n_bytes),
        )
        for row in rows
    )
    columns = ("rejected tokens", "ms a round", "tokens a round", "ms a token", "x nothing drafted", "states")
    notes = (f"{n_draft} draft tokens, {acceptance:.0%} accepted each; the draft itself costs nothing here.", where)
    return Table("What taking tokens back costs", columns, cells, notes)


def _verdict(rows: Sequence[StateCost]) -> str:
    plain, best = rows[-1], min(rows, key=lambda row: row.token_s)
    if best is plain:
        return "Nothing drafted is the fastest here."
    return f"{best.way.capitalize()} gives {plain.token_s / best.token_s:.2f}x of plain decoding, drafts for free."
