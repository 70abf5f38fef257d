"""`bench specquant FAMILY`: Tables I and II of SpecQuant (arXiv 2609.21704), and the share of tiers, measured here.

The paper can be read in two ways: Q4 and Q8 draft for F16, or Q4 and Q8 answer themselves. Both are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...gguf.family.family import Family
from ...runtime import EngineOptions
from ..evaluation.questions import Question, load_questions
from ..evaluation.tasks import TASKS, Task
from ..measure.environment import environment_line
from ..measure.measurement import Case
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..runs.local_runs import LocalRuns, Setting, alone
from ..runs.settings import RouteChoice, reference_of, router_of, speculation_of
from ..runs.workplace import open_workplace
from .specquant_tables import (
    BENCHMARKS,
    DIFFERENCES,
    PAPER,
    Replies,
    Reply,
    decode_table,
    row_document,
    table_one,
    table_two,
    tiers_table,
    verdict,
)

TIERS = {"q4": "low (Q4)", "q8": "medium (Q8)", "none": "high (F16 alone)"}


def bench_specquant(
    family: Family,
    options: EngineOptions,
    say: Say,
    *,
    limit: int,
    budget_s: float = 600.0,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Measures the three benchmarks, reading by reading in turns: limit questions of each, fewer if time is short.

    Raises FamilyError, EngineError.
    """
    reference = reference_of(family.variants)
    choose = router_of("paper", family.variants)
    readings: dict[str, Callable[[str], Setting]] = {
        "baseline": lambda _prompt: alone(reference),
        "they draft": partial(_drafting, choose),
        "they answer": partial(_answering, choose, reference),
    }
    with open_workplace(family, options, say=say) as place:
        replies: Replies = {name: {} for name in readings}
        begun = clock()
        for rank, (kind, title) in enumerate(BENCHMARKS, 1):
            questions = load_questions(kind, limit=limit)
            for setting_for in readings.values():  # warm up
                _reply(place.local, replace(TASKS[kind], max_tokens=4), questions[0], setting_for, choose)
            for number, question in enumerate(questions):
                if number and clock() - begun > budget_s * rank / len(BENCHMARKS):
                    place.notes.append(f"{title}: {number} of {len(questions)} questions; a larger --budget asks all")
                    break
                say(f"{title}: question {number + 1} of {len(questions)}")
                order = list(readings.items())
                for name, setting_for in order if number % 2 == 0 else reversed(order):
                    reply = _reply(place.local, TASKS[kind], question, setting_for, choose)
                    replies[name].setdefault(kind, []).append(reply)
        head = environment_line(place.environment)
        rates = decode_table(replies, place.ceiling)
        first = replace(table_one(replies, head), notes=(head, *DIFFERENCES, *place.notes))
        shown = (first, table_two(replies), tiers_table(replies["they draft"]), rates)
        document = make_document(
            "specquant",
            environment=place.environment,
            reference=reference,
            n_questions=limit,
            results=[row_document(replies, kind) for kind, _ in BENCHMARKS],
            bandwidth=place.bandwidth,
            notes=place.notes,
            paper=PAPER,
            differences=DIFFERENCES,
        )
        return Result(f"{family.name}: SpecQuant, Tables I and II", document, shown, verdict(replies))


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
