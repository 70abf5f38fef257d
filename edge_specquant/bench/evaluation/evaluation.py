"""`eval mmlu|gsm8k|alpaca`: every question answered by the target alone and with speculation; accuracy and differences.

For mmlu the choices are scored by log-likelihood as well. Takes a family and questions, gives a Result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...engine.prompts.control_tokens import with_bos
from ...errors import ContextFullError, PromptTooLongError
from ...gguf.family.family import Family
from ...native.opening import open_model
from ...params import SpeculationParams
from ...routing.records.jsonl import append_object
from ...runtime import EngineOptions
from ..measure.environment import environment_line
from ..measure.measurement import Case, Sample
from ..measure.statistics import Interval, proportion, ratio_interval
from ..reports import tables
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..reports.tables import Table
from ..runs.local_runs import Setting, alone
from ..runs.settings import reference_of
from ..runs.workplace import open_cache, open_workplace
from .questions import LETTERS, Question
from .scoring import log_likelihoods
from .tasks import Task, open_prompt, scored_prompt


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """target None is the most precise sibling. draft None is the default of speculation. record: a file for replies."""

    target: str | None = None
    draft: str | None = None
    n_draft: int | None = None
    max_tokens: int | None = None
    record: Path | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, answered twice; right is None where nothing can be right."""

    question: Question
    alone: Sample
    drafted: Sample
    right_alone: bool | None
    right_drafted: bool | None

    @property
    def same(self) -> bool:
        """Whether both replies are the same tokens."""
        return self.alone.tokens == self.drafted.tokens


def evaluate(
    family: Family, options: EngineOptions, task: Task, questions: Sequence[Question], wish: EvalOptions, say: Say
) -> Result:
    """Runs an evaluation. Raises FamilyError, EngineError."""
    target = family.variant(wish.target).name if wish.target else reference_of(family.variants)
    scored = score_choices(family, options, target, questions, say) if task.kind == "mmlu" else None
    speculation = SpeculationParams(draft=wish.draft, n_draft=wish.n_draft)
    drafted = Setting(f"{target} with speculation", target, speculation)
    with open_workplace(family, options, say=say, with_ceiling=False) as place:
        answers: list[Answer] = []
        skipped: list[str] = []
        for number, question in enumerate(questions):
            say(f"question {number + 1} of {len(questions)}")
            n_tokens = wish.max_tokens or task.max_tokens
            case = Case(question.id, task.kind, task.prompt(question), n_tokens)
            try:
                if number == 0:  # warm up
                    place.local.measure(drafted, replace(case, max_tokens=4))
                settings = (alone(target), drafted)
                pair = [place.local.measure(setting, case) for setting in settings[:: 1 if number % 2 else -1]]
            except (PromptTooLongError, ContextFullError):
                skipped.append(question.id)
                continue
            answers.append(_marked(task, question, *pair[:: 1 if number % 2 else -1]))
            if wish.record:
                append_object(wish.record, _recorded(answers[-1]))
        notes = (environment_line(place.environment), *_skipped(skipped))
        return _result(family, place.environment, task, target, answers, scored, notes)


@dataclass(frozen=True, slots=True)
class Scored:
    """Question by question, whether the right choice is the likeliest: by its letter, and by its text a character."""

    by_letter: tuple[bool, ...]
    by_text: tuple[bool, ...]


def score_choices(
    family: Family, options: EngineOptions, target: str, questions: Sequence[Question], say: Say
) -> Scored:
    """Scores the choices as continuations. Small models favour one letter whatever is asked: the text tells more."""
    with open_model(family.path(target), vocab_only=True) as model:
        vocab = model.vocab
        letters = [vocab.tokenize(f" {letter}") for letter in LETTERS]
        asked = [with_bos(vocab.tokenize(scored_prompt(one)), vocab) for one in questions]
        open_asked = [with_bos(vocab.tokenize(open_prompt(one)), vocab) for one in questions]
        texts = [[vocab.tokenize(f" {choice}") for choice in one.choices] for one in questions]
    longest = max(len(tokens) for some in (letters, *texts) for tokens in some)
    by_letter: list[bool] = []
    by_text: list[bool] = []
    n_ctx = max(map(len, (*asked, *open_asked))) + longest
    with open_cache(family, target, options, n_ctx=n_ctx, max_rows=longest) as cache:
        for number, question in enumerate(questions):
            say(f"scoring question {number + 1} of {len(questions)}")
            right = LETTERS.index(question.letter or LETTERS[0])
            by_letter.append(int(log_likelihoods(cache, asked[number], letters).argmax()) == right)
            scores = log_likelihoods(cache, open_asked[number], texts[number])
            lengths = np.array([len(choice) for choice in question.choices])
            by_text.append(int((scores / lengths).argmax()) == right)
    return Scored(tuple(by_letter), tuple(by_text))


def _result(
    family: Family,
    environment: dict[str, object],
    task: Task,
    target: str,
    answers: Sequence[Answer],
    scored: Scored | None,
    notes: tuple[str, ...],
) -> Result:
    n_different = sum(not answer.same for answer in answers)
    speedup = ratio_interval([[ratio] for answer in answers if (ratio := _speedup(answer))])
    accuracy = {
        "log-likelihood of the letters": _share(scored.by_letter) if scored else None,
        "log-likelihood of the choices": _share(scored.by_text) if scored else None,
        "target alone": _share([a.right_alone for a in answers]),
        "with speculation": _share([a.right_drafted for a in answers]),
    }
    n_drafted = sum(answer.drafted.n_drafted or 0 for answer in answers)
    n_accepted = sum(answer.drafted.n_accepted or 0 for answer in answers)
    acceptance = n_accepted / n_drafted if n_drafted else None
    compared = (f"{n_different} of {len(answers)}", tables.times(speedup), tables.share(acceptance))
    rows = [
        (name, tables.share_interval(found), *(compared if name == "with speculation" else (tables.UNKNOWN,) * 3))
        for name, found in accuracy.items()
        if found is not None or "likelihood" not in name
    ]
    columns = ("how", "accuracy [95 %]", "different replies", "speed, x target alone", "acceptance")
    sentence = _sentence(n_different, len(answers), task)
    document = make_document(
        f"eval {task.kind}",
        environment=environment,
        family=family.name,
        target=target,
        n_questions=len(answers),
        accuracy=accuracy,
        n_different=n_different,
        speedup=speedup,
        acceptance=acceptance,
        notes=notes,
    )
    table = Table(f"{family.name}, {task.kind}: {target}", columns, tuple(rows), notes)
    return Result(f"Evaluation {task.kind}", document, (table,), (sentence,))


def _sentence(n_different: int, n: int, task: Task) -> str:
    judged = "" if task.mark else " Nothing judges these replies as right or wrong: agreement is what is measured."
    if n_different == 0:
        return f"Speculation changed none of {n} replies.{judged}"
    return (
        f"Speculation changed {n_different} of {n} replies: a batch of several tokens rounds differently, so near-ties "
        f"can fall the other way; strict mode removes even those.{judged}"
    )


def _marked(task: Task, question: Question, lonely: Sample, drafted: Sample) -> Answer:
    mark = task.mark
    right = [mark(question, sample.text) if mark else None for sample in (lonely, drafted)]
    return Answer(question, lonely, drafted, right[0], right[1])


def _share(marks: Sequence[bool | None]) -> Interval | None:
    known = [mark for mark in marks if mark is not None]
    return proportion(sum(known), len(known))


def _speedup(answer: Answer) -> float | None:
    lonely, drafted = answer.alone.tokens_per_s, answer.drafted.tokens_per_s
    return drafted / lonely if lonely and drafted else None


def _recorded(answer: Answer) -> dict[str, object]:
    return {
        "id": answer.question.id,
        "alone": answer.alone.text,
        "with_speculation": answer.drafted.text,
        "right_alone": answer.right_alone,
        "right_with_speculation": answer.right_drafted,
        "same": answer.same,
    }


def _skipped(ids: Sequence[str]) -> tuple[str, ...]:
    return (f"{len(ids)} questions did not fit the context: {', '.join(ids[:5])}",) if ids else ()
