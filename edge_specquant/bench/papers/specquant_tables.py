"""Tables I and II of SpecQuant (arXiv 2609.21704) from replies measured here, with the paper's figures beside. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..measure.measurement import Sample
from ..measure.statistics import Interval, mean_interval, proportion
from ..reports import tables
from ..reports.tables import Table

BENCHMARKS = (("mmlu", "MMLU"), ("alpaca", "Alpaca Eval"), ("gsm8k", "GSM8K"))
PAPER_TIERS = {"low (Q4)": 28, "medium (Q8)": 52, "high (F16 alone)": 20}


@dataclass(frozen=True, slots=True)
class Published:
    """The paper's figures of one benchmark: seconds, per cent."""

    baseline_s: float
    specquant_s: float
    speedup: float
    accuracy: float
    specquant_accuracy: float
    acceptance: float


PAPER = {
    "mmlu": Published(4.07, 3.01, 35.2, 72.5, 72.3, 66.1),
    "alpaca": Published(6.42, 4.50, 42.6, 75.0, 74.9, 60.9),
    "gsm8k": Published(8.83, 6.43, 37.3, 70.0, 69.9, 57.9),
}
DIFFERENCES = (
    "the paper: Qwen2.5-7B-Instruct, hardware, batch size and reply lengths not given; here: the family and machine "
    "of the head line, batch 1, greedy, replies of at most 16, 192 and 256 tokens",
    "the paper gives no router weights or thresholds; ours are the policy `paper`, whose thresholds reproduce its "
    "split on other prompts",
    "the paper's questions are MMLU, AlpacaEval and GSM8K; these are this project's own of the same kinds "
    "(`eval` takes the published sets)",
    "the paper's speed-up in per cent is baseline / SpecQuant - 1; so is ours",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One question under one reading."""

    sample: Sample
    right: bool | None
    tier: str

    @property
    def latency_s(self) -> float:
        """Prompt to last token."""
        return (self.sample.ttft_s or 0.0) + self.sample.decode_s


Replies = dict[str, dict[str, list[Reply]]]
"""reading -> benchmark -> replies."""


def table_one(replies: Replies, head: str) -> Table:
    """Average inference time and speed-up, both readings."""
    rows = []
    for kind, title in BENCHMARKS:
        paper = PAPER[kind]
        base = _mean_s(replies["baseline"][kind])
        cells = [title, f"{base:.2f}"]
        for reading in ("they draft", "they answer"):
            mean = _mean_s(replies[reading][kind])
            cells += [f"{mean:.2f}", _percent(_speedup(replies, reading, kind))]
        rows.append((*cells, f"{paper.baseline_s}", f"{paper.specquant_s}", f"{paper.speedup}"))
    columns = (
        "Benchmark",
        "Baseline (s)",
        "SpecQuant, they draft (s)",
        "Speedup (%)",
        "SpecQuant, they answer (s)",
        "Speedup (%)",
        "paper: Baseline (s)",
        "paper: SpecQuant (s)",
        "paper: Speedup (%)",
    )
    title = "Table I: average inference time and speedup across benchmarks"
    return Table(title, columns, tuple(rows), (head, *DIFFERENCES))


def table_two(replies: Replies) -> Table:
    """Accuracy, its change, acceptance."""
    rows = []
    for kind, title in BENCHMARKS:
        paper = PAPER[kind]
        base = _accuracy(replies["baseline"][kind])
        drafted, answered = (_accuracy(replies[name][kind]) for name in ("they draft", "they answer"))
        rows.append(
            (
                title,
                tables.share_interval(base),
                tables.share_interval(drafted),
                _delta(base, drafted),
                _delta(base, answered),
                tables.share(_acceptance(replies["they draft"][kind])),
                f"{_identical(replies, 'they draft', kind)}",
                f"{paper.accuracy} / {paper.specquant_accuracy} / {paper.specquant_accuracy - paper.accuracy:+.1f}",
                f"{paper.acceptance}",
            )
        )
    columns = (
        "Benchmark",
        "Normal Acc. [95 %]",
        "SpecQuant Acc. (they draft)",
        "Δ Acc., they draft",
        "Δ Acc., they answer",
        "Acceptance Rate",
        "replies identical to the baseline (they draft)",
        "paper: Normal / SpecQuant / Δ",
        "paper: Acceptance (%)",
    )
    notes = ("Alpaca Eval has no accuracy without a judge model; the paper does not name its judge",)
    return Table("Table II: accuracy and token acceptance rates", columns, tuple(rows), notes)


def decode_table(replies: Replies, ceiling: Callable[[float | None], float | None]) -> Table:
    """Decoding apart from the prompt, beside what the memory's bandwidth allows; ceiling: bytes a token -> tokens/s."""
    rows = []
    for kind, title in BENCHMARKS:
        for reading, found in replies.items():
            samples = [reply.sample for reply in found[kind] if reply.sample.n_generated > 1]
            n_tokens = sum(sample.n_generated - 1 for sample in samples)
            seconds = sum(sample.decode_s for sample in samples)
            moved = [sample.n_bytes_moved for sample in samples if sample.n_bytes_moved is not None]
            limit = ceiling(sum(moved) / n_tokens) if n_tokens and len(moved) == len(samples) else None
            rate = n_tokens / seconds if seconds > 0 else None
            reached = rate / limit if rate and limit else None
            cells = (tables.number(rate, 1), tables.number(limit, 1), tables.share(reached))
            rows.append((title, reading, *cells))
    columns = ("Benchmark", "reading", "decoding, tokens/s", "ceiling, tokens/s", "of the ceiling")
    notes = ("the ceiling is the weights read for each token (draft passes included) at the bandwidth measured here",)
    return Table("Decoding rate and its ceiling", columns, tuple(rows), notes)


def tiers_table(replies: dict[str, list[Reply]]) -> Table:
    """How the router split the prompts."""
    found = [reply.tier for some in replies.values() for reply in some]
    rows = tuple(
        (tier, f"{100 * found.count(tier) / len(found):.0f} %", f"{PAPER_TIERS[tier]} %") for tier in PAPER_TIERS
    )
    return Table("Share of tiers", ("tier", "here", "paper"), rows)


def verdict(replies: Replies) -> tuple[str, ...]:
    """The speed-up of each reading over all questions."""
    sentences = []
    for reading in ("they draft", "they answer"):
        ratios = [ratio for kind, _ in BENCHMARKS for ratio in _ratios(replies, reading, kind)]
        found = mean_interval([float(np.log(ratio)) for ratio in ratios])
        if found is not None and found.low is not None and found.high is not None:
            value, low, high = (100 * (float(np.exp(x)) - 1) for x in (found.value, found.low, found.high))
            sentences.append(
                f"SpecQuant as '{reading}': {value:+.0f} % speed [{low:+.0f}, {high:+.0f}]; the paper: +38 %."
            )
    return tuple(sentences)


def row_document(replies: Replies, kind: str) -> dict[str, object]:
    """One benchmark, JSON-ready."""
    return {
        "benchmark": kind,
        "baseline_s": _mean_s(replies["baseline"][kind]),
        "readings": {
            reading: {
                "seconds": _mean_s(replies[reading][kind]),
                "speedup_percent": _speedup(replies, reading, kind),
                "accuracy": _accuracy(replies[reading][kind]),
                "acceptance": _acceptance(replies[reading][kind]),
            }
            for reading in ("they draft", "they answer")
        },
        "accuracy": _accuracy(replies["baseline"][kind]),
    }


def _ratios(replies: Replies, reading: str, kind: str) -> list[float]:
    pairs = zip(replies["baseline"][kind], replies[reading][kind], strict=True)
    return [base.latency_s / other.latency_s for base, other in pairs if other.latency_s > 0]


def _speedup(replies: Replies, reading: str, kind: str) -> float:
    """Per cent, of the mean times, as the paper has it."""
    return 100 * (_mean_s(replies["baseline"][kind]) / _mean_s(replies[reading][kind]) - 1)


def _mean_s(replies: Sequence[Reply]) -> float:
    return float(np.mean([reply.latency_s for reply in replies]))


def _accuracy(replies: Sequence[Reply]) -> Interval | None:
    known = [reply.right for reply in replies if reply.right is not None]
    return proportion(sum(known), len(known))


def _acceptance(replies: Sequence[Reply]) -> float | None:
    n_drafted = sum(reply.sample.n_drafted or 0 for reply in replies)
    return sum(reply.sample.n_accepted or 0 for reply in replies) / n_drafted if n_drafted else None


def _identical(replies: Replies, reading: str, kind: str) -> str:
    pairs = list(zip(replies["baseline"][kind], replies[reading][kind], strict=True))
    return f"{sum(base.sample.tokens == other.sample.tokens for base, other in pairs)} of {len(pairs)}"


def _delta(base: Interval | None, other: Interval | None) -> str:
    return tables.UNKNOWN if base is None or other is None else f"{100 * (other.value - base.value):+.1f}"


def _percent(value: float) -> str:
    return f"{value:+.1f}"
