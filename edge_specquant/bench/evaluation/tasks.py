"""How each evaluation asks and marks: the prompt of a question, and whether a reply is right. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .questions import LETTERS, Question

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_MARKED = re.compile(r"####\s*\$?\s*(-?\d[\d,]*(?:\.\d+)?)")
_LETTER = re.compile(r"\b([ABCD])\b")


@dataclass(frozen=True, slots=True)
class Task:
    """mark is None where no reply is right or wrong by itself."""

    kind: str
    max_tokens: int
    prompt: Callable[[Question], str]
    mark: Callable[[Question, str], bool] | None


def choice_prompt(question: Question) -> str:
    """A four-choice question for chat."""
    return f"{_listed(question)}\n\nAnswer with the letter of the right choice only."


def scored_prompt(question: Question) -> str:
    """The same as plain text that the letter continues (Hendrycks et al. 2021, without examples)."""
    about = f" about {question.subject}" if question.subject else ""
    head = f"The following is a multiple choice question (with answer){about}."
    return f"{head}\n\n{_listed(question)}\nAnswer:"


def open_prompt(question: Question) -> str:
    """The question without its choices, which are scored as continuations."""
    return f"Question: {question.text}\nAnswer:"


def letter_of(reply: str) -> str | None:
    """The first single capital A to D; None when there is none."""
    found = _LETTER.search(reply)
    return found[1] if found else None


def number_of(reply: str) -> float | None:
    """The number after '####', else the last number of the reply; None when there is none."""
    marked = _MARKED.findall(reply)
    numbers = marked or _NUMBER.findall(reply)
    return float(numbers[-1].replace(",", "")) if numbers else None


def _word_problem_prompt(question: Question) -> str:
    return f"{question.text}\n\nThink step by step. Give the final number on the last line, after ####."


def _listed(question: Question) -> str:
    lines = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, question.choices, strict=True)]
    return "\n".join([question.text, *lines])


TASKS = {
    "mmlu": Task("mmlu", 16, choice_prompt, lambda question, reply: letter_of(reply) == question.letter),
    "gsm8k": Task("gsm8k", 256, _word_problem_prompt, lambda question, reply: number_of(reply) == question.number),
    "alpaca": Task("alpaca", 192, lambda question: question.text, None),
}
