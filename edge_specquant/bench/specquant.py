"""`bench specquant FAMILY`: Tables I and II of SpecQuant (arXiv 2609.21704), and the share of tiers, measured here.

The paper can be read in two ways: Q4 and Q8 draft for F16, or Q4 and Q8 answer themselves. Both are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..gguf.family import Family
from ..runtime import EngineOptions
from . import tables
from .document import make_document
from .environment import environment_line
from .local_runs import LocalRuns, Setting, alone
from .measurement import Case, Sample
from .questions import Question, load_questions
from .result import Result, Say
from .settings import RouteChoice, reference_of, router_of, speculation_of
from .statistics import Interval, mean_interval, proportion
from .tables import Table
from .tasks import TASKS, Task
from .workplace import open_workplace

BENCHMARKS = (("mmlu", "MMLU"), ("alpaca", "Alpaca Eval"), ("gsm8k", "GSM8K"))
TIERS = {"q4": "low (Q4)", "q8": "medium (Q8)", "none": "high (F16 alone)"}


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
PAPER_TIERS = {"low (Q4)": 28, "medium (Q8)": 52, "high (F16 alone)": 20}
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


def bench_specquant(family: Family, options: EngineOptions, say: Say, *, limit: int) -> Result:
    """Measures the three benchmarks, reading by reading in turns. Raises FamilyError, EngineError."""
    reference = reference_of(family.variants)
    choose = router_of("paper", family.variants)
    readings: dict[str, Callable[[str], Setting]] = {
        "baseline": lambda _prompt: alone(reference),
        "they draft": partial(_drafting, choose),
        "they answer": partial(_answering, choose, reference),
    }
    with open_workplace(family, options, say=say, with_ceiling=False) as place:
        replies: Replies = {name: {} for name in readings}
        for kind, title in BENCHMARKS:
            questions = load_questions(kind, limit=limit)
            for setting_for in readings.values():  # warm up
                _reply(place.local, replace(TASKS[kind], max_tokens=4), questions[0], setting_for, choose)
            for number, question in enumerate(questions):
                say(f"{title}: question {number + 1} of {len(questions)}")
                order = list(readings.items())
                for name, setting_for in order if number % 2 == 0 else reversed(order):
                    reply = _reply(place.local, TASKS[kind], question, setting_for, choose)
                    replies[name].setdefault(kind, []).append(reply)
        head = environment_line(place.environment)
        shown = (_table_one(replies, head), _table_two(replies), _tiers(replies["they draft"]))
        document = make_document(
            "specquant",
            environment=place.environment,
            reference=reference,
            n_questions=limit,
            results=[_row_document(replies, kind) for kind, _ in BENCHMARKS],
            paper=PAPER,
            differences=DIFFERENCES,
        )
        return Result(f"{family.name}: SpecQuant, Tables I and II", document, shown, _verdict(replies))


def _drafting(choose: Callable[[str], RouteChoice], prompt: str) -> Setting:
    """The reading in which F16 verifies what the routed sibling drafts."""
    choice = choose(prompt)
    return Setting("they draft", choice[0], speculation_of(choice))


def _answering(choose: Callable[[str], RouteChoice], reference: str, prompt: str) -> Setting:
    """The reading in which the routed sibling answers itself."""
    _, draft, _ = choose(prompt)
    return alone(reference if draft == "none" else draft)


def _reply(
    local: LocalRuns,
    task: Task,
    question: Question,
    setting_for: Callable[[str], Setting],
    choose: Callable[[str], RouteChoice],
) -> Reply:
    prompt = task.prompt(question)
    sample = local.measure(setting_for(question.text), Case(question.id, task.kind, prompt, task.max_tokens))
    right = task.mark(question, sample.text) if task.mark else None
    return Reply(sample, right, TIERS.get(choose(question.text)[1], "other"))


def _table_one(replies: Replies, head: str) -> Table:
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


def _table_two(replies: Replies) -> Table:
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


def _tiers(replies: dict[str, list[Reply]]) -> Table:
    found = [reply.tier for some in replies.values() for reply in some]
    rows = tuple(
        (tier, f"{100 * found.count(tier) / len(found):.0f} %", f"{PAPER_TIERS[tier]} %") for tier in PAPER_TIERS
    )
    return Table("Share of tiers", ("tier", "here", "paper"), rows)


def _verdict(replies: Replies) -> tuple[str, ...]:
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


def _row_document(replies: Replies, kind: str) -> dict[str, object]:
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
