"""The labelled set is what it says: 300 prompts, ten languages, pairs of an easy and a hard one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from edge_specquant.errors import FileError
from edge_specquant.routing.records.prompts import Prompt, read_prompts


def test_300_texts_in_ten_languages(prompts: list[Prompt]) -> None:
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 300
    languages = Counter(prompt.labels["lang"] for prompt in prompts)
    assert len(languages) == 10
    assert min(languages.values()) >= 10


def test_every_pair_has_an_easy_and_a_hard_prompt_of_one_language_and_class(prompts: list[Prompt]) -> None:
    pairs: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        pairs.setdefault(prompt.group, []).append(prompt)
    for pair in pairs.values():
        assert sorted(prompt.labels["level"] for prompt in pair) == ["easy", "hard"]
        assert len({(prompt.labels["lang"], prompt.labels["class"]) for prompt in pair}) == 1


def test_length_alone_does_not_tell_easy_from_hard(prompts: list[Prompt]) -> None:
    median = sorted(len(prompt.text) for prompt in prompts)[len(prompts) // 2]
    long_easy = [p for p in prompts if p.labels["level"] == "easy" and len(p.text) > median]
    short_hard = [p for p in prompts if p.labels["level"] == "hard" and len(p.text) < median]
    assert min(len(long_easy), len(short_hard)) >= 15


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no prompts"),
        ("[1]\n", "line 1 holds no JSON object"),
        ('{"text": "a"}\nnot json\n', "line 2 is not JSON"),
        ('{"id": 1}\n', "line 1 has no text"),
        ('{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}\n', "line 2 uses the id '1' again"),
    ],
)
def test_a_file_that_is_no_prompt_set_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=message):
        read_prompts(file)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")


def test_a_bare_text_a_line_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one"}\n{"text": "two"}\n', encoding="utf-8")
    assert [(p.id, p.group, p.text) for p in read_prompts(file)] == [("1", "1", "one"), ("2", "2", "two")]
