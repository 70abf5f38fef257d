"""The shipped questions are well formed and varied; the published sets' own formats are read; marking is strict."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from edge_specquant.bench.evaluation.questions import KINDS, load_questions
from edge_specquant.bench.evaluation.tasks import TASKS, letter_of, number_of, scored_prompt
from edge_specquant.errors import FileError, UsageError


def test_two_hundred_questions_come_along() -> None:
    sets = {kind: load_questions(kind) for kind in KINDS}
    assert sum(map(len, sets.values())) == 200
    for questions in sets.values():
        assert len({question.id for question in questions}) == len(questions)
        assert len({question.text for question in questions}) == len(questions)


def test_choices_differ_and_no_letter_is_favoured() -> None:
    questions = load_questions("mmlu")
    assert all(len(set(question.choices)) == 4 for question in questions)
    letters = Counter(question.letter for question in questions)
    assert max(letters.values()) - min(letters.values()) <= 1
    assert len({question.subject for question in questions}) >= 15


def test_word_problems_have_whole_answers() -> None:
    assert all(question.number is not None and question.number > 0 for question in load_questions("gsm8k"))


def test_a_perfect_reply_is_right_and_another_is_wrong() -> None:
    for question in load_questions("mmlu"):
        mark = TASKS["mmlu"].mark
        assert mark and question.letter and mark(question, f"{question.letter}.")
        assert not mark(question, "ABCD".replace(question.letter, "")[0])
    for question in load_questions("gsm8k"):
        mark = TASKS["gsm8k"].mark
        assert mark and question.number is not None
        assert mark(question, f"First 3 and 4.\n#### {question.number:,}")
        assert not mark(question, f"#### {question.number + 1}")
    assert TASKS["alpaca"].mark is None


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("so 12 and 30 make #### 42.", 42),
        ("The answer is $1,234.", 1234),
        ("3 + 4 = 7\n#### $7\nThat was 2 steps", 7),
        ("#### -5", -5),
        ("none", None),
        ("12.50", 12.5),
    ],
)
def test_numbers_are_found(reply: str, number: float | None) -> None:
    assert number_of(reply) == number


@pytest.mark.parametrize(
    ("reply", "letter"), [("B", "B"), ("(C) because", "C"), ("The answer is D.", "D"), ("ABC", None), ("", None)]
)
def test_letters_are_found(reply: str, letter: str | None) -> None:
    assert letter_of(reply) == letter


def test_published_formats_are_read(tmp_path: Path) -> None:
    mmlu = {"question": "Q", "subject": "abstract_algebra", "choices": ["0", "4", "2", "6"], "answer": 1}
    gsm8k = {"question": "Q", "answer": "It is 2,000 + 16.\n#### 2,016"}
    alpaca = [{"instruction": "Do it.", "input": "This.", "output": "x"}]
    (tmp_path / "m.jsonl").write_text(json.dumps(mmlu), encoding="utf-8")
    (tmp_path / "g.jsonl").write_text(json.dumps(gsm8k), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(alpaca), encoding="utf-8")
    (choice,) = load_questions("mmlu", str(tmp_path / "m.jsonl"))
    assert choice.letter == "B" and "abstract algebra" in scored_prompt(choice)
    assert load_questions("gsm8k", str(tmp_path / "g.jsonl"))[0].number == 2016
    assert load_questions("alpaca", str(tmp_path / "a.json"))[0].text == "Do it.\n\nThis."


def test_limit_and_errors(tmp_path: Path) -> None:
    assert len(load_questions("mmlu", limit=3)) == 3
    with pytest.raises(UsageError, match="there is no evaluation 'x'"):
        load_questions("x")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "Q", "choices": ["a", "b"], "answer": 0}\n{"x": 1}\n', encoding="utf-8")
    with pytest.raises(FileError, match=r"record 1 of .* is no mmlu question"):
        load_questions("mmlu", str(bad))
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match="holds no questions"):
        load_questions("alpaca", str(tmp_path / "empty.jsonl"))
    (tmp_path / "a.parquet").write_text("no parquet", encoding="utf-8")
    with pytest.raises(FileError, match=r"pyarrow|parquet"):
        load_questions("mmlu", str(tmp_path / "a.parquet"))
