"""Summaries as tables: one for all contestants, one by prompt class, and the sentences that draw the conclusion.

Takes Summaries and ceilings, gives Tables and sentences. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..measure.measurement import LONG_CLASS
from . import tables
from .summary import Summary
from .tables import Table

CLEAR_GAIN = 1.03  # below it a draft is not worth its memory
CHAT_CLASSES = ("story", "explanation", "new code", "short fact")


def contestants_table(
    title: str, summaries: Sequence[Summary], ceilings: Mapping[str, float | None], reference: str
) -> Table:
    """Everybody with everything; ceilings by contestant in tokens per second."""
    has_energy = any(one.decode_j_per_token is not None for one in summaries)
    columns = (
        "setting",
        "tokens/s (quartiles)",
        "ceiling tokens/s",
        "of the ceiling",
        "x its target alone [95 %]",
        f"x {reference}",
        "acceptance",
        "tokens a round",
        "first token",
        "same replies as its target alone",
        "memory",
        *(("J/token", "watts") if has_energy else ()),
    )
    return Table(title, columns, tuple(_row(one, ceilings.get(one.name), has_energy) for one in summaries))


def classes_table(title: str, summaries: Sequence[Summary]) -> Table:
    """Speed against the same file without a draft, by prompt class; the last column is the mean of the chat classes."""
    classes = [n for n in dict.fromkeys(name for one in summaries for name in one.by_class) if n != LONG_CLASS]
    rows = []
    for one in (each for each in summaries if each.name != each.baseline):
        found = [one.by_class[name].speedup if name in one.by_class else None for name in classes]
        rows.append((one.name, *(tables.times_short(each) for each in found), _short_mean(one)))
    return Table(title, ("setting", *classes, "mean of the chat classes"), tuple(rows))


def first_token_table(summaries: Sequence[Summary]) -> Table | None:
    """Time to first token on the long prompt; None where it was not measured."""
    known = [(one, one.by_class[LONG_CLASS]) for one in summaries if LONG_CLASS in one.by_class]
    rows = tuple((one.name, tables.seconds(found.ttft_s), tables.times(found.ttft_ratio)) for one, found in known)
    title = "Time to first token, long prompt, cold caches"
    return Table(title, ("setting", "seconds", "x its target alone [95 %]"), rows) if rows else None


def profile_table(summaries: Sequence[Summary]) -> Table | None:
    """Where the decode time goes; None where nobody knows."""
    known = [(one, one.profile) for one in summaries if one.profile]
    rows = tuple(
        (
            one.name,
            *(tables.percent(share) for share in (found.target, found.drafter, found.outside)),
            *(tables.percent(share) for share in (found.sampling, found.drafting, found.rest)),
        )
        for one, found in known
    )
    columns = (
        "setting",
        "target's forwards",
        "draft's forwards",
        "outside the engine",
        "of which sampling, acceptance",
        "drafting besides forwards",
        "the rest",
    )
    return Table("Where the decode time goes", columns, rows) if rows else None


def chat_mean(summary: Summary) -> float | None:
    """Arithmetic mean of the speedups of the chat classes that were measured."""
    known = [summary.by_class[name].speedup for name in CHAT_CLASSES if name in summary.by_class]
    values = [found.value for found in known if found is not None]
    return sum(values) / len(values) if values else None


def what_pays(summaries: Sequence[Summary]) -> tuple[str, ...]:
    """One sentence for each baseline: the best draft and whether it pays; then who was slower than without a draft."""
    sentences: list[str] = []
    for base in dict.fromkeys(one.baseline for one in summaries):
        drafted = [one for one in summaries if one.baseline == base and one.draft != "none" and one.speedup]
        if not drafted:
            continue
        best = max(drafted, key=lambda one: one.speedup.value if one.speedup else 0.0)
        found = tables.times(best.speedup)
        if best.speedup and best.speedup.value >= CLEAR_GAIN:
            unsure = best.speedup.excludes(1.0) is False
            doubt = "; it differs so much from prompt to prompt that this may be chance" if unsure else ""
            sentences.append(f"Against {base}: '{best.name}' pays most, {found}{doubt}.")
        else:
            sentences.append(f"Against {base}: no draft pays here; the best, '{best.name}', reaches {found}.")
        losing = [one for one in drafted if one.speedup and one.speedup.value < 1 / CLEAR_GAIN]
        if losing:
            named = ", ".join(f"'{one.name}' {tables.times_short(one.speedup)}" for one in losing)
            sentences.append(f"Slower than {base}: {named}.")
    return tuple(sentences)


def _row(one: Summary, ceiling: float | None, has_energy: bool) -> tuple[str, ...]:
    reached = one.tokens_per_s.median / ceiling if one.tokens_per_s and ceiling else None
    energy = (tables.number(one.decode_j_per_token), tables.number(one.decode_watts, 1)) if has_energy else ()
    return (
        one.name,
        tables.rate(one.tokens_per_s),
        tables.number(ceiling, 1),
        tables.share(reached),
        tables.UNKNOWN if one.name == one.baseline else tables.times(one.speedup),
        tables.times_short(one.gain),
        tables.share(one.acceptance),
        tables.number(one.mean_accepted_length),
        tables.seconds(one.ttft_s),
        tables.same(one.same_as_baseline),
        tables.size(one.n_memory_bytes),
        *energy,
    )


def _short_mean(one: Summary) -> str:
    mean = chat_mean(one)
    return tables.UNKNOWN if mean is None else f"{mean:.2f}x"
